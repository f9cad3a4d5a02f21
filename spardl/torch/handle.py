"""The hooks on a user's optimizer, and what they keep: which gradients are there, which collectives are under way.

Between the first gradient of a backward pass and the optimizer's step there is one cycle of the buckets: they are sent
during backward (with ``overlap``; else at the end), and the step waits for them.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from spardl import timeline
from spardl.agreement import check_together, fail_together, gather_json, raise_together
from spardl.errors import NonFiniteGradient
from spardl.protocols.metrics import Metrics
from spardl.runtime.group import CommLike, Group
from spardl.runtime.mpi import wait_all
from spardl.torch import checkpoint
from spardl.torch.amp import NoScaler, ScalerGuard
from spardl.torch.arrivals import Arrivals, changed, hook_on_gradients
from spardl.torch.bucket_set import BucketSet
from spardl.torch.buckets import Bucket, BucketBuilder
from spardl.torch.checks import Unchanged, non_finite
from spardl.torch.cycle import Cycle
from spardl.torch.graphs import outside_graphs
from spardl.torch.layout import BucketPlan
from spardl.torch.live import live_handles
from spardl.torch.replicas import ReplicaWatch
from spardl.torch.start import broadcast_tensors
from spardl.torch.stats import Stats
from spardl.torch.sync import SparDL, Sync, settings_of
from spardl.torch.watch import GradientWatch


class Handle:
    """What ``distribute`` returns. Training needs nothing more of it; its methods are for what a script does beyond.

    Every method but ``no_sync``, ``stats`` and ``state_dict`` has to be called by all ranks.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
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
        warn_after: float | None,
        verify_every: int,
    ) -> None:
        """``optimizers``: the one that does the steps is the last; the others wrap it."""
        optimizer = optimizers[-1]
        self._optimizer, self._model, self._parameters = optimizer, model, dict(parameters)
        self._sync, self._group, self._timeout = sync, group, timeout
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._unchanged = Unchanged(optimizer, self._parameters)

        builder = BucketBuilder(self._parameters, sync, comm, group, timeout, warn_after)
        self._set = BucketSet(builder, dense_names, bucket_bytes)
        self._seen: dict[str, None] = {}  # parameters in the order of their first gradients

        self._paused = 0
        self._synchronized = False
        self._applying = contextlib.ExitStack()  # the timeline's span from the end of synchronize() to that of step()
        self._watch = GradientWatch(self._parameters)
        self._step = 0  # of the whole training, checkpoints included
        self._stats = Stats()
        self._entries = self._elements = 0
        settings = settings_of(sync) | {"bucket_mb": bucket_bytes / 1e6, "exclude": sorted(dense_names)}
        self._replicas = ReplicaWatch(self._parameters, group, verify_every, settings, timeout, warn_after)
        local_clip = sync.local_clip if isinstance(sync, SparDL) else None
        self._overlap = overlap and local_clip is None
        self._arrivals = Arrivals(self._parameters, once=self._overlap)
        self._cycle = Cycle(self._watch, lambda: self._amp.scale, local_clip)

        self._amp: ScalerGuard | NoScaler = (
            NoScaler(optimizers)
            if scaler is None
            else ScalerGuard(scaler, optimizers, self.synchronize, self._end_step)
        )
        self._run_cycle = outside_graphs(self._synchronize)
        self._hooks = [
            optimizer.register_step_pre_hook(outside_graphs(self._before_step)),
            optimizer.register_step_post_hook(outside_graphs(lambda *_: self._end_step())),
            *hook_on_gradients(self._parameters.values(), self._on_gradient),
        ]
        live_handles.add(self)

    # -- for users -----------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Makes every ``grad`` final: the mean over ranks. Call it to clip or look at gradients before ``step()``.

        ``step()`` does this if it was not done. If it raises, on all ranks, nothing has changed: neither residuals nor
        this rank's own gradients.
        """
        if not self._synchronized:
            self._run_cycle()

    def _synchronize(self) -> None:
        with timeline.span("synchronize", step=self._step):
            problem = self._problem()
            if not self._buckets:
                self._lay_out(problem)
            try:
                if problem is not None:
                    raise problem
                with timeline.span("fill buckets"):
                    self._cycle.send_rest()
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
        density = self._entries / self._elements if self._elements else 0.0
        return replace(self._stats, density=density, residual_norm=self._set.residual_norm)

    @property
    def residuals(self) -> dict[str, torch.Tensor]:
        """What this rank still owes, by parameter; copies. Parameters that are sent whole are not listed."""
        return self._set.residuals

    def broadcast_buffers(self) -> None:
        """Makes the model's buffers (e.g. running means of batch norm) rank 0's, say before evaluating or saving."""
        broadcast_tensors(self._group, self._model.buffers(), self._timeout)

    def verify(self) -> None:
        """Raises ``ReplicasDiffer`` unless all parameters of the model, frozen ones too, are equal on all ranks.

        To the bit. ``distribute(..., verify_every=…)`` compares what is trained every so many steps.
        """
        self._replicas.compare(dict(self._model.named_parameters()))

    @property
    def metrics(self) -> Metrics:
        """As other systems have it: here all ranks contribute to every step, with gradients that are new."""
        steps = self._stats.steps
        return Metrics(
            iterations=steps,
            contributors=[self._group.size] * steps,
            staleness={0: steps} if steps else {},
            waited_seconds=self._stats.wait_seconds,
        )

    def settle(self) -> None:
        """The moment to evaluate or to save: weights are equal, which is verified, and buffers become rank 0's."""
        self._require_between_steps("settle()")
        self.broadcast_buffers()
        if self._replicas.every > 0:
            self._replicas.compare(self._parameters)

    def finish(self) -> None:
        """``settle()`` and ``remove()``: the end of training, with any ``sync``."""
        if self._hooks:
            self.settle()
        self.remove()

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.finish()

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
            "buckets": self._set.state(),
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
            return mine, self._set.plans_for(mine["buckets"])

        call = "load_state_dict"
        mine, plans = check_together(
            self._group, check, self._timeout, call, lambda found: {"step": found[0]["steps"], "buckets": str(found[1])}
        )
        buckets = self._set.build(plans, mine["steps"])
        same_ranks = mine["ranks"] == self._group.size
        loads = check_together(
            self._group, lambda: self._set.prepare_loads(buckets, mine["buckets"], same_ranks), self._timeout, call
        )
        for load in loads:
            load()
        self._step = mine["steps"]
        self._use(buckets)
        self._watch.forget_written()
        self._synchronized = False

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
        # Not within synchronize(): weights may be others for a while then, as SAM's.
        self._replicas.before_step()
        self._applying.enter_context(timeline.span("apply"))

    def _end_step(self) -> None:
        self._applying.close()
        self._synchronized = False

    def _on_gradient(self, parameter: torch.nn.Parameter) -> None:
        name = self._names[id(parameter)]
        self._seen.setdefault(name)
        self._synchronized = False
        if self._paused:
            return
        problem = self._arrivals.note(name)
        if problem is not None:
            self._give_up(problem)
            raise problem
        if not self._overlap:
            return
        if not self._buckets:
            self._watch.note_come(name)
            return
        self._cycle.send(name)

    # -- one cycle -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        tasks = self._cycle.tasks
        computed = sum(task.traffic.compute_seconds for task in tasks)
        waiting_since = time.perf_counter()
        try:
            with timeline.span("wait for buckets"):
                wait_all(tasks)
        except Exception as error:
            self._take_back(error)
            return
        ended = time.perf_counter()
        with timeline.span("write gradients back"):
            self._cycle.write_back(self._weight_decay())
        computed_meanwhile = sum(task.traffic.compute_seconds for task in tasks) - computed
        self._stats = self._stats.plus(
            [task.traffic for task in tasks],
            dense_bytes=sum(bucket.dense_bytes for bucket in self._buckets),
            communicate_seconds=ended - self._cycle.began,
            wait_seconds=max(0.0, ended - waiting_since - computed_meanwhile),
        )
        self._entries += sum(bucket.entries for bucket in self._buckets)
        self._elements += sum(bucket.size for bucket in self._buckets)
        self._step += 1
        self._arrivals.forget()
        self._cycle.end()
        self._set.retune(self._step)
        self._synchronized = True

    def _give_up(self, error: Exception) -> None:
        """This rank cannot go on: the others raise in their synchronize(), and nothing has changed."""
        if not self._buckets:
            fail_together(self._group, error, self._timeout, "synchronize")
        self._arrivals.forget()
        self._cycle.give_up(error)

    def _take_back(self, error: Exception) -> None:
        """A bucket failed, on all ranks: so the step has not happened."""
        failed = self._cycle.failed_with(error)
        self._give_up(error)
        if failed is None or not isinstance(error, NonFiniteGradient):
            raise error
        if self._amp.skips:
            failed.poison()  # on all ranks, so that all scalers skip this step and lower their scale
            self._stats = replace(self._stats, skipped=self._stats.skipped + 1)
            self._synchronized = True
            return
        raise non_finite(error, repr(failed.parameter_at(error.index)), "distribute") from error

    # -- laying out ----------------------------------------------------------------------------------------------------

    def _lay_out(self, problem: Exception | None) -> None:
        """Decides on buckets, once, in the order in which rank 0's gradients came."""
        rows = [n for n, p in self._parameters.items() if p.grad is not None and p.grad.layout == torch.sparse_coo]
        try:
            raise_together(self._group, problem, self._timeout, "synchronize")
        except Exception:
            self._arrivals.forget()
            self._cycle.end()
            raise
        told = gather_json(self._group, {"order": list(self._seen), "rows": rows}, self._timeout, "laying out buckets")
        order = [*told[0]["order"], *(n for n in reversed(self._parameters) if n not in set(told[0]["order"]))]
        with_rows = {name for other in told for name in other["rows"]}
        self._use(self._set.build(self._set.plan(order, with_rows), self._step))

    def _use(self, buckets: list[Bucket]) -> None:
        self._set.buckets = buckets
        self._cycle.use(buckets)

    @property
    def _buckets(self) -> list[Bucket]:
        """Laid out in the first synchronisation, when backward's order is known."""
        return self._set.buckets

    # -- checks --------------------------------------------------------------------------------------------------------

    def _problem(self) -> Exception | None:
        if (problem := self._amp.problem()) is not None:
            return problem
        if self._paused:
            return RuntimeError("step() or synchronize() inside no_sync(): leave the block before the last backward()")
        if (name := self._watch.changed()) is not None:
            return changed(name)
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
