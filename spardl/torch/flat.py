"""A bucket of parameters whose gradients are reduced as one flat vector, sparsely or densely."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from spardl import saved
from spardl.allreduce import SparseAllreduce
from spardl.kernels.api import Values
from spardl.runtime.mpi import Task
from spardl.sparse import SparseVector
from spardl.torch.layout import SPARSE, memory_strides
from spardl.torch.momentum import MomentumCorrection


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter's place in its bucket."""

    name: str
    parameter: torch.nn.Parameter
    start: int
    view: torch.Tensor  # of the bucket's vector, in the parameter's shape and order of memory


class FlatBucket:
    """Gradients go in with ``take``, are reduced by the task that ``start`` begins, and come out with ``finish``.

    The vector is both: first this rank's gradients, and after ``finish`` the mean over ranks, which the parameters'
    ``grad`` then point into. It is where the reducer works: in the host's memory, or on ``device``, a GPU.
    """

    def __init__(
        self,
        kind: str,
        named: Sequence[tuple[str, torch.nn.Parameter]],
        reducer: SparseAllreduce,
        ranks: int,
        dtype: torch.dtype,
        momentum: MomentumCorrection | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.kind, self.reducer = kind, reducer
        self.momentum = momentum
        self.size = sum(parameter.numel() for _, parameter in named)
        self._vector: Values | None = None  # none on a GPU
        if device is None:
            # numpy's allocator asks for huge pages, torch's does not; the pass over the gradient is 10 % faster so
            self._vector = np.empty(self.size, str(dtype).removeprefix("torch."))
            self._vector.fill(0)
            self._flat = torch.from_numpy(self._vector)
        else:
            self._flat = torch.zeros(self.size, dtype=dtype, device=device)
        self._ranks = ranks
        self.names = [name for name, _ in named]
        self.slots = self._cut(named)
        self.task: Task[SparseVector] | None = None
        self.entries = 0  # of the last result
        self._began_on: torch.cuda.Stream | None = None  # the stream of the reduce that is under way

    def _cut(self, named: Sequence[tuple[str, torch.nn.Parameter]]) -> list[Slot]:
        slots, start = [], 0
        for name, parameter in named:
            view = self._flat.as_strided(parameter.size(), memory_strides(parameter), start)
            slots.append(Slot(name, parameter, start, view.data))  # .data: with a version counter of its own
            start += parameter.numel()
        return slots

    @property
    def dense_bytes(self) -> int:
        """What the best dense all-reduce would send per rank."""
        return 2 * (self._ranks - 1) * self._flat.nbytes // self._ranks

    @property
    def dtype(self) -> str:
        return str(self._flat.dtype).removeprefix("torch.")

    # -- gradients in --------------------------------------------------------------------------------------------------

    def take(self, position: int, grad: torch.Tensor | None, unscale: float) -> None:
        """Puts one parameter's gradient in its place; None counts as zeros."""
        view = self.slots[position].view
        if grad is None:
            view.zero_()
            return
        if grad.is_sparse:
            raise TypeError(
                f"parameter {self.slots[position].name!r} has a sparse gradient now, but had a dense one in the first "
                "step; use handle.remove() and distribute() again after such a change"
            )
        if not points_to(grad, view):
            view.copy_(grad)
        if unscale != 1:
            view.mul_(unscale)

    def give_back(self, position: int, factor: float) -> None:
        """The step has failed: a gradient that lies in its place has been multiplied by ``factor``, which is undone."""
        slot = self.slots[position]
        if factor != 1 and points_to(slot.parameter.grad, slot.view):
            slot.view.div_(factor)

    def squared_norm(self) -> float:
        return float(torch.linalg.vector_norm(self._flat, dtype=torch.float64)) ** 2

    def scale(self, factor: float) -> None:
        self._flat.mul_(factor)

    # -- reduction -----------------------------------------------------------------------------------------------------

    def start(self) -> Task[SparseVector]:
        if self._vector is None:
            self._began_on = current_stream(self._flat)
            self.task = self.reducer.start(self._flat, stream=pointer_to(self._began_on))
        elif self.momentum is None:
            self.task = self.reducer.start(self._vector)
        else:
            self.task = self.reducer.start(self.momentum.hand_in(self._vector))
        return self.task

    def fail(self, error: Exception) -> None:
        """Makes this step's reduce end with ``error`` on all ranks."""
        if self.task is None:
            self.reducer.fail(error)
        else:
            self.task.abort(error)

    def undo(self) -> None:
        """Takes a reduce back that succeeded."""
        self.reducer.undo()

    def parameter_at(self, index: int) -> str:
        """Whose gradient the element at ``index`` belongs to."""
        return self.slots[bisect_right([slot.start for slot in self.slots], index) - 1].name

    # -- gradients out -------------------------------------------------------------------------------------------------

    def finish(self, scale: float, weight_decay: Mapping[str, float]) -> None:
        """Makes the mean over ranks, times ``scale``, every parameter's ``grad``."""
        assert self.task is not None
        result = self.task.wait()
        if self._vector is None:
            stream = current_stream(self._flat)
            if stream is not None and self._began_on is not None and stream != self._began_on:
                stream.wait_stream(self._began_on)
            self.reducer.write_mean(result, self._flat, scale, stream=pointer_to(stream))
        else:
            write_mean(result, self._vector, self._ranks, scale)
        self.entries = result.nnz
        if self.momentum is not None:
            self.momentum.commit(result)
        for slot in self.slots:
            if self.momentum is not None:
                self.momentum.add_decay(slot.start, slot.parameter, weight_decay[slot.name], slot.view)
            if slot.parameter.requires_grad:  # frozen meanwhile: it shall not move
                hand_over(slot.parameter, slot.view)

    def poison(self) -> None:
        """Makes one gradient infinite, for a GradScaler to find."""
        self.slots[0].view.fill_(torch.inf)
        hand_over(self.slots[0].parameter, self.slots[0].view)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @property
    def residual(self) -> Values | None:
        """What this rank still owes. None in a dense bucket, unless it took over a residual that it has yet to pay."""
        owed = self.reducer.residual
        return owed if self.kind == SPARSE or owed.any() else None

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        if self.residual is not None:
            state["reducer"] = _to_tensors(self.reducer.state_dict())
            state["residual"] = state["reducer"].pop("residual", torch.zeros(self.size, dtype=self._flat.dtype))
        if self.momentum is not None:
            state["velocity"] = torch.from_numpy(self.momentum.velocity.copy())
            if self.momentum.decay_velocity is not None:
                state["decay_velocity"] = torch.from_numpy(self.momentum.decay_velocity.copy())
        return state

    def prepare_load(self, state: Mapping[str, Any], *, same_ranks: bool) -> Callable[[], None]:
        """Checks a state, and returns what loads it; until that is called nothing changes.

        It goes on exactly if it was taken with the same ranks and settings; else the residual alone is carried on.
        """
        steps: list[Callable[[], None]] = []
        if "residual" in state:
            residual = saved.finite(np.ascontiguousarray(state["residual"].numpy(), self.dtype), "the residual")
            learnt = _to_arrays(state["reducer"]) if "reducer" in state else {}
            if same_ranks and "reducer" in state and self._is_as_now(learnt):
                loaded = self.reducer.prepare_load(learnt | {"residual": residual})
                steps.append(partial(self.reducer.finish_load, loaded))
            else:
                steps.append(partial(self.reducer.start_from, residual))
        if self.momentum is not None and "velocity" in state:
            decay = state.get("decay_velocity")
            velocities = state["velocity"].numpy(), None if decay is None else decay.numpy()
            steps.append(partial(self.momentum.restore, *velocities))

        def load() -> None:
            for step in steps:
                step()

        return load

    def _is_as_now(self, learnt: Mapping[str, Any]) -> bool:
        """Whether a reducer's state was taken with the settings of today, after a reduce."""
        now, then = self.reducer.state_dict()["config"], saved.mapping(saved.part(learnt, "config"), "config")
        if {name: type(value) for name, value in then.items()} != {name: type(value) for name, value in now.items()}:
            raise saved.unfit("config", f"to have what {now} has", then)
        return bool(then == now and learnt.keys() - {"config", "ranks", "rank"})


def write_mean(result: SparseVector, out: Values, ranks: int, scale: float) -> None:
    """``out`` = the mean of which ``result`` is the sum over ranks, times ``scale``."""
    kind = out.dtype.type
    everything = result.nnz == result.size
    mean = np.divide(result.values, kind(ranks), out=out if everything else None)
    if scale != 1:
        mean *= kind(scale)
    if not everything:
        out.fill(0)
        out[result.indices] = mean


def current_stream(tensor: torch.Tensor) -> torch.cuda.Stream | None:
    """The stream that work on the tensor goes to; None if it is not on a GPU."""
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


def pointer_to(stream: torch.cuda.Stream | None) -> int | None:
    return None if stream is None else stream.cuda_stream


def points_to(grad: torch.Tensor | None, view: torch.Tensor) -> bool:
    """True if ``grad`` is ``view``, by memory."""
    return (
        grad is not None
        and grad.layout == view.layout
        and grad.data_ptr() == view.data_ptr()
        and grad.dtype == view.dtype
        and grad.stride() == view.stride()
    )


def hand_over(parameter: torch.nn.Parameter, result: torch.Tensor) -> None:
    """Makes ``result`` the parameter's gradient: itself where it can be, else rounded and moved to where it must be."""
    if parameter.dtype == result.dtype and parameter.device == result.device:
        if not points_to(parameter.grad, result):
            parameter.grad = result
        return
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter)
    parameter.grad.copy_(result)


def _to_tensors(state: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tensors, which ``torch.load`` reads without being told that they are safe."""
    return {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in state.items()}


def _to_arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in state.items()}
