"""A communication hook for people who already use DistributedDataParallel.

``model.register_comm_hook(None, spt.ddp_hook(spt.SparDL(density=0.01), model=model))``; DDP then decides on
buckets and calls back. Buckets are reduced while backward goes on; their futures are completed in the last one's call.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from spardl import saved
from spardl.agreement import check_together
from spardl.allreduce import SparseAllreduce
from spardl.errors import NonFiniteGradient
from spardl.kernels.api import Values
from spardl.runtime.group import CommLike, resolve
from spardl.runtime.inspector import warning_time
from spardl.runtime.limit import time_limit
from spardl.runtime.mpi import Task, advance_all, wait_all
from spardl.sparse import SparseVector
from spardl.torch.buckets import BucketBuilder
from spardl.torch.checks import non_finite
from spardl.torch.flat import write_mean
from spardl.torch.layout import ACCUMULATED_AS, DENSE, SPARSE
from spardl.torch.sync import RNA, Dense, SparDL, Sync, require_fitting


def ddp_hook(
    sync: Sync,
    comm: CommLike | None = None,
    *,
    scaler: torch.amp.GradScaler | None = None,
    timeout: float | None = None,
    warn_after: float | None = None,
    model: torch.nn.Module | None = None,
) -> "DdpHook":
    """The second argument of ``DistributedDataParallel.register_comm_hook``; the first may be None.

    ``comm`` has to have the ranks of DDP's process group, in the same order. Give the GradScaler if you use one: then a
    non-finite gradient on one rank makes all skip the step. Momentum correction and clipping need ``distribute``, where
    ``timeout`` and ``warn_after`` are explained. With the ``model``, errors can name its parameters.
    """
    if not isinstance(sync, SparDL | Dense):
        raise TypeError(
            f"ddp_hook: expected sync to be SparDL(…) or Dense(), got {type(sync).__name__}"
            + ("; RNA needs spardl.torch.distribute and a model without DDP" if isinstance(sync, RNA) else "")
        )
    if isinstance(sync, SparDL) and (sync.momentum > 0 or sync.local_clip is not None):
        raise ValueError("ddp_hook: SparDL(momentum=…) and SparDL(local_clip=…) need spardl.torch.distribute")
    if comm is None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    return DdpHook(sync, comm, scaler, time_limit(timeout), warning_time(warn_after), model)


class _Bucket:
    """One of DDP's buckets: the parameters it had when last seen, and their reducer."""

    def __init__(self, parameters: list[torch.Tensor], dtype: torch.dtype, reducer: SparseAllreduce) -> None:
        self.keys = [id(parameter) for parameter in parameters]
        self.parameters = parameters
        self.reducer = reducer
        self.grad: Values = np.empty(sum(p.numel() for p in parameters), str(dtype).removeprefix("torch."))
        self.buffer: torch.Tensor  # DDP's, in which the result is expected
        self.future: torch.futures.Future[torch.Tensor]

    def residuals(self) -> dict[int, Values]:
        """Copies, by parameter; none if nothing is owed, as in a dense bucket after a step."""
        owed = self.reducer.residual
        if not owed.any():
            return {}
        ends = np.cumsum([parameter.numel() for parameter in self.parameters])
        return dict(zip(self.keys, map(np.copy, np.split(owed, ends[:-1])), strict=True))

    def parameter_at(self, index: int) -> torch.Tensor:
        """Whose gradient the element at ``index`` belongs to."""
        ends = np.cumsum([parameter.numel() for parameter in self.parameters])
        return self.parameters[int(np.searchsorted(ends, index, side="right"))]

    def take_over(self, residuals: dict[int, Values]) -> None:
        """Owes what its parameters have in ``residuals``, from where it is removed, and nothing else."""
        parts = [residuals.pop(key, np.zeros(p.numel())) for key, p in zip(self.keys, self.parameters, strict=True)]
        self.reducer.start_from(np.concatenate(parts, dtype=self.grad.dtype))


class DdpHook:
    """GradBucket in, Future out."""

    def __init__(
        self,
        sync: Sync,
        comm: CommLike,
        scaler: torch.amp.GradScaler | None,
        timeout: float,
        warn_after: float,
        model: torch.nn.Module | None,
    ) -> None:
        self.__name__ = self.__qualname__ = "spardl_ddp_hook"  # DDP asks for them, as if this were a function
        self._sync, self._scaler = sync, scaler
        self._group, self._timeout = resolve(comm, timeout), timeout
        require_fitting(sync, self._group.size)
        bare = model.module if isinstance(model, DistributedDataParallel) else model
        self._names = {} if bare is None else {id(p): name for name, p in bare.named_parameters()}
        self._builder = BucketBuilder({}, sync, comm, self._group, timeout, warn_after)
        self._buckets: dict[int, _Bucket] = {}
        self._under_way: list[tuple[_Bucket, Task[SparseVector]]] = []
        self._owed: dict[int, Values] = {}  # residuals of parameters whose buckets are not built yet
        self._step = 0

    def __call__(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        # register_comm_hook insists on the names and types of these arguments
        mine = self._known(bucket)
        mine.buffer, mine.future = bucket.buffer(), torch.futures.Future()
        torch.from_numpy(mine.grad).copy_(mine.buffer)
        scale = float(self._scaler.get_scale()) if self._scaler is not None else 1.0
        if scale != 1:
            mine.grad *= mine.grad.dtype.type(1 / scale)
        self._under_way.append((mine, mine.reducer.start(mine.grad)))
        advance_all([task for _, task in self._under_way])
        if bucket.is_last():
            self._finish(scale)
        return mine.future

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """This rank's residuals by name, and the step, for ``torch.save``."""
        owed = dict(self._owed)
        for bucket in self._buckets.values():
            owed |= bucket.residuals()
        residuals = {n: torch.from_numpy(owed[id(p)].copy()) for n, p in model.named_parameters() if id(p) in owed}
        return {"steps": self._step, "residuals": residuals}

    def load_state_dict(self, model: torch.nn.Module, state: Mapping[str, Any]) -> None:
        """Owes again what was owed then; call it on all ranks before training goes on.

        If the state of one rank is damaged or does not fit, all ranks raise ValueError, and nothing has changed.
        """
        check = partial(_checked_state, model, state)
        self._step, self._owed = check_together(
            self._group, check, self._timeout, "load_state_dict", lambda found: {"step": found[0]}
        )
        for bucket in self._buckets.values():
            bucket.take_over(self._owed)

    def _known(self, given: GradBucket) -> _Bucket:
        """DDP lays its buckets out anew after the first step; residuals move along with their parameters."""
        parameters = given.parameters()
        bucket = self._buckets.get(given.index())
        if bucket is None or bucket.keys != [id(parameter) for parameter in parameters]:
            if bucket is not None:
                under_way = [as_before for as_before, _ in self._under_way]
                for index in [index for index, old in self._buckets.items() if old not in under_way]:
                    self._owed |= self._buckets.pop(index).residuals()
            dtype = ACCUMULATED_AS[given.buffer().dtype]
            kind = DENSE if isinstance(self._sync, Dense) else SPARSE
            reducer = self._builder.reducer(kind, given.buffer().numel(), self._step)
            bucket = self._buckets[given.index()] = _Bucket(parameters, dtype, reducer)
            bucket.take_over(self._owed)
        return bucket

    def _finish(self, scale: float) -> None:
        under_way, self._under_way = self._under_way, []
        try:
            wait_all([task for _, task in under_way])
        except Exception as error:
            for bucket, task in under_way:
                if task.error is None:
                    bucket.reducer.undo()
            if not isinstance(error, NonFiniteGradient):
                raise
            if self._scaler is None or not self._scaler.is_enabled():
                failed = next(bucket for bucket, task in under_way if task.error is error)
                raise non_finite(error, self._name_of(failed.parameter_at(error.index)), "ddp_hook") from error
            under_way[0][0].buffer.fill_(torch.inf)  # on all ranks: their scalers skip this step
        else:
            self._step += 1
            for bucket, task in under_way:
                write_mean(task.wait(), bucket.grad, self._group.size, scale)
                bucket.buffer.copy_(torch.from_numpy(bucket.grad))
                if isinstance(self._sync, SparDL):
                    bucket.reducer.retune(density=self._sync.density_at(self._step))
        for bucket, _ in under_way:
            bucket.future.set_result(bucket.buffer)

    def _name_of(self, parameter: torch.Tensor) -> str:
        """Its shape, if nobody told names."""
        if id(parameter) in self._names:
            return repr(self._names[id(parameter)])
        return f"a parameter of shape {list(parameter.shape)} (ddp_hook(..., model=model) tells which)"


def _checked_state(model: torch.nn.Module, state: Any) -> tuple[int, dict[int, Values]]:
    """The step, and residuals by parameter. Raises ValueError if the state is not one of this model."""
    owed = {}
    steps = saved.integer(saved.part(state, "steps"), "steps", 0)
    saved.nothing_but(["steps", "residuals"], state, "the state")
    parameters = dict(model.named_parameters())
    for name, residual in saved.mapping(saved.part(state, "residuals"), "residuals").items():
        if name not in parameters:
            raise ValueError(f"load_state_dict: the model has no parameter {name!r}")
        if not isinstance(residual, torch.Tensor) or residual.dtype not in (torch.float32, torch.float64):
            raise saved.unfit(f"the residual of {name!r}", "to be a tensor of float32 or float64", residual)
        if residual.numel() != parameters[name].numel():
            raise saved.unfit(f"the residual of {name!r}", f"of {parameters[name].numel()} elements", residual.numel())
        flat = residual.numpy().reshape(-1)
        owed[id(parameters[name])] = saved.finite(flat, f"the residual of {name!r}")
    return steps, owed
