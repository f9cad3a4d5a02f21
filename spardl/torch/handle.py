"""The hooks on a user's optimizer, and what they keep: which gradients are there, which collectives are under way.

One *cycle* goes from the first gradient of a backward pass to the optimizer's step. In it every bucket is filled,
started once it is full (with ``overlap``; else at the end), driven on whenever another gradient arrives, waited for,
and written back. A cycle is a transaction over all buckets: if one fails, those that succeeded are taken back.
"""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from spardl import timeline
from spardl.agreement import check_together, gather_json, raise_together
from spardl.errors import NonFiniteGradient
from spardl.runtime.group import CommLike, Group
from spardl.runtime.mpi import Task, advance_all, wait_all
from spardl.torch import checkpoint
from spardl.torch.amp import NoScaler, ScalerGuard
from spardl.torch.buckets import Bucket, BucketBuilder
from spardl.torch.checks import Unchanged
from spardl.torch.flat import FlatBucket
from spardl.torch.layout import DENSE, ROWS, SPARSE, BucketPlan, memory_strides, plan_buckets
from spardl.torch.start import broadcast_tensors
from spardl.torch.stats import Stats
from spardl.torch.sync import Dense, SparDL, Sync
from spardl.torch.watch import GradientWatch

live_handles: "weakref.WeakSet[Distributed]" = weakref.WeakSet()


class Distributed(Protocol):
    """A handle that is in use: what it has may not be distributed again."""

    def is_for(self, optimizer: torch.optim.Optimizer) -> bool: ...

    def has(self, parameter: torch.nn.Parameter) -> bool: ...


class Handle:
    """What ``distribute`` returns. Training needs nothing more of it; its methods are for what a script does beyond.

    Every method but ``no_sync``, ``stats`` and ``state_dict`` has to be called by all ranks.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        parameters: Mapping[str, torch.nn.Parameter],
        *,
        sync: Sync,
        comm: CommLike,
        group: Group,
        dense_names: set[str],
        overlap: bool,
        bucket_bytes: float,
        scaler: torch.amp.GradScaler | None,
        timeout: float,
        warn_after: float | None = None,
    ) -> None:
        self._optimizer, self._model, self._parameters = optimizer, model, dict(parameters)
        self._sync, self._group, self._timeout = sync, group, timeout
        self._dense_names, self._bucket_bytes = dense_names, bucket_bytes
        self._overlap = overlap and not (isinstance(sync, SparDL) and sync.local_clip is not None)
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._unchanged = Unchanged(optimizer, self._parameters)

        self._builder = BucketBuilder(self._parameters, sync, comm, group, timeout, warn_after)
        self._buckets: list[Bucket] = []  # laid out in the first synchronisation, when backward's order is known
        self._places: dict[str, tuple[Bucket, int]] = {}
        self._seen: dict[str, None] = {}  # parameters in the order of their first gradients

        self._paused = 0
        self._synchronized = False
        self._applying = contextlib.ExitStack()  # the timeline's span from the end of synchronize() to that of step()
        self._unscale: float | None = None  # this cycle's factor from scaled to true gradients
        self._clipped = 1.0  # this cycle's factor of local clipping
        self._watch = GradientWatch(self._parameters)
        self._cycle_began = 0.0
        self._step = 0  # of the whole training, checkpoints included
        self._stats = Stats()
        self._entries = self._elements = 0

        self._amp: ScalerGuard | NoScaler = (
            NoScaler(optimizer) if scaler is None else ScalerGuard(scaler, optimizer, self.synchronize, self._end_step)
        )
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(lambda *_: self._end_step()),
            *(_hook_on(p, self._on_gradient) for p in self._parameters.values()),
        ]
        live_handles.add(self)

    # -- for users -----------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Makes every ``grad`` final: the mean over ranks. Call it to clip or look at gradients before ``step()``.

        ``step()`` does this if it was not done. If it raises, on all ranks, nothing has changed: neither residuals nor
        this rank's own gradients.
        """
        if self._synchronized:
            return
        with timeline.span("synchronize", step=self._step):
            problem = self._problem()
            if not self._buckets:
                self._lay_out(problem)
            try:
                if problem is not None:
                    raise problem
                with timeline.span("fill buckets"):
                    self._fill_and_start()
            except Exception as error:
                self._give_up(error)
                raise
            self._finish()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add to this rank's gradients; the first one outside sends the sum."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    @property
    def stats(self) -> Stats:
        """This rank's totals so far."""
        squares = [float(np.linalg.norm(owed)) ** 2 for b in self._buckets if (owed := b.residual) is not None]
        density = self._entries / self._elements if self._elements else 0.0
        return replace(self._stats, density=density, residual_norm=float(np.sqrt(sum(squares))))

    @property
    def residuals(self) -> dict[str, torch.Tensor]:
        """What this rank still owes, by parameter; copies. Parameters that are sent whole are not listed."""
        owed = {}
        for bucket in self._buckets:
            if isinstance(bucket, FlatBucket) and (residual := bucket.residual) is not None:
                for slot in bucket.slots:
                    part = torch.from_numpy(residual[slot.start : slot.start + slot.parameter.numel()].copy())
                    owed[slot.name] = part.as_strided(slot.view.size(), slot.view.stride())
        return owed

    def broadcast_buffers(self) -> None:
        """Makes the model's buffers (e.g. running means of batch norm) rank 0's, say before evaluating or saving."""
        broadcast_tensors(self._group, self._model.buffers(), self._timeout)

    def remove(self) -> None:
        """Takes the hooks off again; the optimizer is what it was before ``distribute``."""
        self._require_between_steps("remove()")
        if self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
            self._amp.remove()
        live_handles.discard(self)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals, thresholds, SAG state and step count, for ``torch.save``: one file per rank."""
        self._require_between_steps("state_dict()")
        return {
            "format": checkpoint.FORMAT,
            "ranks": self._group.size,
            "rank": self._group.me,
            "steps": self._step,
            "buckets": [checkpoint.sealed(self._describe(bucket) | bucket.state_dict()) for bucket in self._buckets],
        }

    def gathered_state_dict(self) -> dict[str, Any] | None:
        """All ranks' states as one, on rank 0 (None on the others). It can be loaded on any number of ranks."""
        states = checkpoint.gather(self._group, self.state_dict(), self._timeout)
        return None if states is None else checkpoint.join_states(states)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a ``state_dict()`` of this rank, or a gathered one; bit for bit on as many ranks as before.

        On another number of ranks the residuals are dealt out anew so that their sum is kept. If the state of one rank
        is damaged or does not fit, all ranks raise ValueError, and nothing has changed.
        """
        self._require_between_steps("load_state_dict()")

        def check() -> tuple[Mapping[str, Any], list[BucketPlan]]:
            mine = checkpoint.state_for(state, self._group.size, self._group.me)
            checkpoint.require_fitting(mine, self._parameters)
            return mine, self._plans_for(mine["buckets"])

        call = "load_state_dict"
        mine, plans = check_together(
            self._group, check, self._timeout, call, lambda found: {"step": found[0]["steps"], "buckets": str(found[1])}
        )
        buckets = [self._builder.build(plan, mine["steps"]) for plan in plans]
        same_ranks = mine["ranks"] == self._group.size
        loads = check_together(
            self._group, lambda: self._prepare_loads(buckets, mine["buckets"], same_ranks), self._timeout, call
        )
        for load in loads:
            load()
        self._step = mine["steps"]
        self._use(buckets)
        self._watch.forget_written()
        self._synchronized = False

    def _plans_for(self, saved: list[dict[str, Any]]) -> list[BucketPlan]:
        """The state's order of parameters; its buckets too, unless sync or exclude have changed."""
        plans = [BucketPlan.from_json(bucket) for bucket in saved]
        kinds = self._kinds({name for plan in plans if plan.kind == ROWS for name in plan.names})
        if any(kinds[name] != plan.kind for plan in plans for name in plan.names):
            order = [name for plan in plans for name in plan.names]
            plans = plan_buckets(order, self._parameters, kinds, self._bucket_bytes)
        return plans

    def _prepare_loads(
        self, buckets: list[Bucket], saved: list[dict[str, Any]], same_ranks: bool
    ) -> list[Callable[[], None]]:
        """For every bucket what makes it go on from its state, or from one laid out as it is."""
        skeletons = [self._describe(bucket) for bucket in buckets]
        if any(old.get(key) != new[key] for old, new in zip(saved, skeletons, strict=False) for key in new):
            saved, same_ranks = checkpoint.lay_out_anew(saved, skeletons), False
        return [bucket.prepare_load(state, same_ranks=same_ranks) for bucket, state in zip(buckets, saved, strict=True)]

    def _describe(self, bucket: Bucket) -> dict[str, Any]:
        parameters = [self._parameters[name] for name in bucket.names]
        return {
            "kind": bucket.kind,
            "names": list(bucket.names),
            "shapes": [list(parameter.shape) for parameter in parameters],
            "strides": [list(memory_strides(parameter)) for parameter in parameters],
            "dtype": bucket.dtype,
        }

    def is_for(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer is self._optimizer

    def has(self, parameter: torch.nn.Parameter) -> bool:
        return id(parameter) in self._names

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def _before_step(self, _optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(callable(argument) for argument in (*args[1:], kwargs.get("closure"))):
            raise TypeError(
                "step(closure) cannot be distributed: gradients must exist before step(). "
                "Compute them with backward() and call step() without a closure."
            )
        self.synchronize()
        self._applying.enter_context(timeline.span("apply"))

    def _end_step(self) -> None:
        self._applying.close()
        self._synchronized = False

    def _on_gradient(self, parameter: torch.nn.Parameter) -> None:
        name = self._names[id(parameter)]
        self._seen.setdefault(name)
        self._synchronized = False
        if self._paused or not self._overlap or not self._buckets:
            return
        bucket, position = self._places[name]
        if bucket.task is not None:
            error = RuntimeError(
                f"the gradient of {name!r} changed after it was sent. If you call backward() several times before "
                "step(), put all but the last into `with handle.no_sync():`, or use distribute(..., overlap=False). "
                "If you leave out a step(), call handle.synchronize() in its place."
            )
            self._give_up(error)
            raise error
        self._take(name, bucket, position)
        if all(map(self._watch.was_sent, bucket.names)):
            bucket.start()
        advance_all(self._tasks())  # what fails, synchronize() raises

    # -- one cycle -----------------------------------------------------------------------------------------------------

    def _tasks(self) -> list[Task[Any]]:
        return [bucket.task for bucket in self._buckets if bucket.task is not None]

    def _take(self, name: str, bucket: Bucket, position: int) -> None:
        """Puts a gradient into its bucket."""
        if self._unscale is None:
            self._unscale = 1 / self._amp.scale
            self._cycle_began = time.perf_counter()
        bucket.take(position, self._watch.new(name), self._unscale)
        self._watch.note_sent(name)

    def _fill_and_start(self) -> None:
        for name, (bucket, position) in self._places.items():
            if not self._watch.was_sent(name):
                self._take(name, bucket, position)
            elif self._watch.changed_since_sent(name):
                raise RuntimeError(
                    f"the gradient of {name!r} was changed between backward() and step(), after it was sent. To clip "
                    "or change gradients call handle.synchronize() first; with a GradScaler use "
                    "distribute(..., scaler=scaler)."
                )
        if isinstance(self._sync, SparDL) and self._sync.local_clip is not None:
            norm = float(np.sqrt(sum(bucket.squared_norm() for bucket in self._buckets)))
            if norm > self._sync.local_clip:
                self._clipped = self._sync.local_clip / norm
                for bucket in self._buckets:
                    bucket.scale(self._clipped)
        for bucket in self._buckets:
            if bucket.task is None:
                bucket.start()

    def _finish(self) -> None:
        tasks = self._tasks()
        computed = sum(task.traffic.compute_seconds for task in tasks)
        waiting_since = time.perf_counter()
        try:
            with timeline.span("wait for buckets"):
                wait_all(tasks)
        except Exception as error:
            self._take_back(error)
            return
        ended = time.perf_counter()
        scale = 1 / self._unscale if self._unscale else 1.0
        decay = self._weight_decay()
        with timeline.span("write gradients back"):
            for bucket in self._buckets:
                bucket.finish(scale, decay)
        self._watch.note_written()
        computed_meanwhile = sum(task.traffic.compute_seconds for task in tasks) - computed
        self._stats = self._stats.plus(
            [task.traffic for task in tasks],
            dense_bytes=sum(bucket.dense_bytes for bucket in self._buckets),
            communicate_seconds=ended - self._cycle_began,
            wait_seconds=max(0.0, ended - waiting_since - computed_meanwhile),
        )
        self._entries += sum(bucket.entries for bucket in self._buckets)
        self._elements += sum(bucket.size for bucket in self._buckets)
        self._step += 1
        self._end_cycle()
        self._retune()
        self._synchronized = True

    def _give_up(self, error: Exception) -> None:
        """This rank cannot go on: neither can the others, and what was reduced is taken back."""
        for bucket in self._buckets:
            if bucket.task is None or not bucket.task.done:
                bucket.fail(error)
            elif bucket.task.error is None:
                bucket.undo()
        self._give_back()

    def _take_back(self, error: Exception) -> None:
        """A bucket failed, on all ranks: so the step has not happened."""
        failed = next(bucket for bucket in self._buckets if bucket.task is not None and bucket.task.error is error)
        self._give_up(error)
        if not isinstance(error, NonFiniteGradient):
            raise error
        if self._amp.skips:
            failed.poison()  # on all ranks, so that all scalers skip this step and lower their scale
            self._stats = replace(self._stats, skipped=self._stats.skipped + 1)
            self._synchronized = True
            return
        raise NonFiniteGradient(
            f"non-finite gradient of {failed.parameter_at(error.index)!r} on rank {error.rank}; no rank has made this "
            "step, and residuals are as before it. With a GradScaler use distribute(..., scaler=scaler).",
            rank=error.rank,
            index=error.index,
        ) from error

    def _give_back(self) -> None:
        """Ends a cycle that failed; this rank's gradients are what they were."""
        factor = (self._unscale or 1.0) * self._clipped
        for name, (bucket, position) in self._places.items():
            if self._watch.was_sent(name):
                bucket.give_back(position, factor)
        self._end_cycle()

    def _end_cycle(self) -> None:
        self._watch.forget_sent()
        self._unscale = None
        self._clipped = 1.0
        for bucket in self._buckets:
            bucket.task = None

    # -- laying out ----------------------------------------------------------------------------------------------------

    def _lay_out(self, problem: Exception | None) -> None:
        """Decides on buckets, once, in the order in which rank 0's gradients came."""
        rows = [n for n, p in self._parameters.items() if p.grad is not None and p.grad.layout == torch.sparse_coo]
        raise_together(self._group, problem, self._timeout, "synchronize")
        told = gather_json(self._group, {"order": list(self._seen), "rows": rows}, self._timeout, "laying out buckets")
        order = [*told[0]["order"], *(n for n in reversed(self._parameters) if n not in set(told[0]["order"]))]
        with_rows = {name for other in told for name in other["rows"]}
        self._build(plan_buckets(order, self._parameters, self._kinds(with_rows), self._bucket_bytes))

    def _kinds(self, with_rows: set[str]) -> dict[str, str]:
        dense = set(self._parameters) if isinstance(self._sync, Dense) else self._dense_names
        return {n: ROWS if n in with_rows else DENSE if n in dense else SPARSE for n in self._parameters}

    def _build(self, plans: list[BucketPlan]) -> None:
        self._use([self._builder.build(plan, self._step) for plan in plans])

    def _use(self, buckets: list[Bucket]) -> None:
        self._buckets = buckets
        self._places = {
            name: (bucket, position) for bucket in self._buckets for position, name in enumerate(bucket.names)
        }

    def _retune(self) -> None:
        if isinstance(self._sync, SparDL):
            density = self._sync.density_at(self._step)
            for bucket in self._buckets:
                if isinstance(bucket, FlatBucket) and bucket.kind == SPARSE:
                    bucket.reducer.retune(density=density)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _problem(self) -> Exception | None:
        if (problem := self._amp.problem()) is not None:
            return problem
        if self._paused:
            return RuntimeError("step() or synchronize() inside no_sync(): leave the block before the last backward()")
        return self._unchanged.problem()

    def _require_between_steps(self, call: str) -> None:
        if any(bucket.task is not None for bucket in self._buckets):
            raise RuntimeError(f"{call} between backward() and step(): finish the step first")

    def _weight_decay(self) -> dict[str, float]:
        return {
            self._names[id(parameter)]: float(group.get("weight_decay", 0.0))
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in self._names
        }


def _hook_on(parameter: torch.nn.Parameter, hook: Callable[[torch.nn.Parameter], None]) -> RemovableHandle:
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
    return handle
