"""RNA for a torch optimizer: ``step()`` deposits a gradient and applies whatever rounds have finished."""

import time
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spardl import kernels, saved, timeline
from spardl.agreement import check_together, gather_json
from spardl.collectives.dense_ring import dense_ring
from spardl.errors import ReplicasDiffer
from spardl.runtime import farewell
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task, shared_channel
from spardl.runtime.traffic import Traffic
from spardl.sync.between import Between
from spardl.sync.box import GradientBox, Metrics, SummingBox, WeightingBox
from spardl.sync.engine import Engine
from spardl.sync.grouping import group_by_speed
from spardl.sync.paces import Groups, Pace
from spardl.sync.parts import DensePart, Shift, SparsePart
from spardl.sync.policies import All
from spardl.timeline.traced import traced_kernels
from spardl.torch import checkpoint
from spardl.torch.amp import NoScaler
from spardl.torch.arrivals import Arrivals, hook_on_gradients
from spardl.torch.checks import Unchanged
from spardl.torch.graphs import outside_graphs
from spardl.torch.live import live_handles
from spardl.torch.local_steps import LocalSteps
from spardl.torch.replicas import ReplicaWatch
from spardl.torch.round_step import RoundStep, require_fitting
from spardl.torch.start import broadcast_optimizer, broadcast_tensors
from spardl.torch.stats import Stats
from spardl.torch.sync import RNA, SparDL
from spardl.torch.terms import Terms
from spardl.torch.vector import ModelVector
from spardl.wire import Codec


class RnaHandle:
    """What ``distribute`` returns for RNA. Call ``finish`` when training is over, or use it as a context."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        parameters: Mapping[str, torch.nn.Parameter],
        *,
        sync: RNA,
        group: Group,
        timeout: float,
        verify_every: int,
    ) -> None:
        require_fitting(optimizer, sync)
        self._optimizer, self._model, self._parameters, self._sync = optimizer, model, dict(parameters), sync
        self._everyone, self._timeout = group, timeout
        self._unchanged, self._amp = Unchanged(optimizer, self._parameters), NoScaler([optimizer])
        self._replicas = ReplicaWatch(parameters, group, verify_every, {}, timeout)
        self._arrivals = Arrivals(self._parameters, once=False)
        self._vector = ModelVector(parameters)
        self._local = LocalSteps(optimizer, self._vector)
        self._part = self._make_part()
        self._metrics, self._pace = Metrics(), Pace()
        self._rounds = 0  # of the whole training, checkpoints included, and of all groups that this rank was in
        self._applied = self._skipped = self._entries = 0  # rounds, and entries of their results, since distribute
        self._traffic, self._communicated = Traffic(), 0.0  # of engines before the present one
        self._own_step = optimizer.step
        terms = Terms(optimizer)
        self._round_step = RoundStep(optimizer, self._own_step, self._vector, terms, linear_scaling=sync.linear_scaling)
        self._tell_terms = terms.tell
        self._terms = terms.tell()  # this rank's numbers in its last step
        own = outside_graphs(self._step)
        # A hook can neither skip a step nor repeat it. Schedulers take a method of the optimizer apart and rebind it.
        step = types.MethodType(lambda _optimizer, closure=None: own(closure), optimizer)
        optimizer.step = step  # type: ignore[method-assign]
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._hooks = hook_on_gradients(self._parameters.values(), self._on_gradient)
        self._finished = False
        live_handles.add(self)
        farewell.remember(self)
        self._open(sync.first_groups(group.size))

    def _make_part(self) -> DensePart | SparsePart:
        reduce, size, dtype = self._sync.reduce, self._vector.size, self._vector.dtype
        if not isinstance(reduce, SparDL):
            return DensePart(size, dtype)
        chosen = traced_kernels(timeline.current(), kernels.load(reduce.backend))
        k = max(1, round(reduce.density_at(0) * size))
        return SparsePart(size, k, dtype, chosen, Codec(chosen, reduce.wire, reduce.wire_dtype))

    # -- for users -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Waits for all ranks to finish and applies the last rounds. All ranks have the same model now.

        Weights are the same by then, which is verified, and buffers become rank 0's. After it, also if it raises what
        has gone wrong, the optimizer works as before ``distribute``.
        """
        if self._finished:
            return
        try:
            self._come_to_rest()
        except BaseException as error:
            self._engine.give_up(error)
            raise
        finally:
            self._end()

    remove = finish

    def settle(self) -> None:
        """Like ``finish``, but training goes on after it: the moment to evaluate or to save. All ranks call it."""
        if self._finished:
            return
        try:
            self._come_to_rest()
        except ReplicasDiffer:
            self._end()  # replicas that differ cannot train together
            raise
        self._open(self._fitting_groups())

    def verify(self) -> None:
        """Raises ``ReplicasDiffer`` unless all parameters of the model, frozen ones too, are equal on all ranks.

        To the bit. Settles first, since they differ while rounds are under way. All ranks call it. Unless
        ``distribute(..., verify_every=0)`` was asked for, ``settle`` and ``finish`` compare what is trained.
        """
        self.settle()
        self._replicas.compare(dict(self._model.named_parameters()))

    def _come_to_rest(self) -> None:
        self._meet()
        self.broadcast_buffers()
        if self._replicas.every > 0:
            self._replicas.compare(self._parameters)

    def _end(self) -> None:
        self._amp.remove()
        for hook in self._hooks:
            hook.remove()
        self._finished = True
        live_handles.discard(self)
        farewell.forget(self)

    def broadcast_buffers(self) -> None:
        """Makes the model's buffers (e.g. running means of batch norm) rank 0's. ``finish`` and ``settle`` do it.

        All ranks call it, after as many steps each.
        """
        broadcast_tensors(self._everyone, self._model.buffers(), self._timeout)

    def __enter__(self) -> "RnaHandle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.finish()
        else:  # the others must not wait for a rank that has left
            self._box.fail(error)

    def leave(self, error: BaseException | None) -> None:
        """The program ends without ``finish``. Those who are still training need not wait for this rank."""
        if error is not None:
            self._engine.give_up(error)
        elif not self._finished:
            if self._everyone.me == 0:
                warnings.warn(
                    "RNA: the program ended without handle.finish(); weights saved before it differ between ranks",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self.finish()

    @property
    def metrics(self) -> Metrics:
        """Contributors by round, how old gradients were, how many were dropped, how long training waited."""
        return self._metrics

    @property
    def groups(self) -> Groups:
        """Which ranks reduce with each other; one group unless RNA was asked for several."""
        return self._groups

    @property
    def residual(self) -> Any:
        """What this rank still owes, after ``finish`` or ``settle``; all of it zero where everything is sent."""
        if isinstance(self._part, SparsePart):
            return self._part.reducer.residual
        return np.zeros(self._vector.size, self._vector.dtype)

    @property
    def stats(self) -> Stats:
        """This rank's totals since ``distribute``. Rounds that nobody contributed to count as skipped."""
        ranks, size = self._everyone.size, self._vector.size
        dense = 2 * (ranks - 1) * size * self._vector.dtype.itemsize // ranks
        present = [] if self._finished else [self._engine]
        totals = Stats().plus(
            [self._traffic, *(engine.traffic for engine in present)],
            dense_bytes=dense * self._applied,
            communicate_seconds=self._communicated + sum(engine.seconds for engine in present),
            wait_seconds=self._metrics.waited_seconds,
        )
        return replace(
            totals,
            steps=self._applied,
            skipped=self._skipped,
            density=self._entries / max(1, size * self._applied),
            residual_norm=self._engine.look(self._residual_norm),
        )

    def _residual_norm(self) -> float:
        return float(np.linalg.norm(self.residual)) if isinstance(self._part, SparsePart) else 0.0

    def is_for(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer is self._optimizer

    def has(self, parameter: torch.nn.Parameter) -> bool:
        return self._vector.has(parameter)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's residual, for ``torch.save``, right after ``settle()`` or ``finish()``: one file per rank."""
        self._require_settled("state_dict()")
        bucket = self._vector.describe("rna")
        if isinstance(self._part, SparsePart):
            bucket["residual"] = torch.from_numpy(self._part.reducer.residual.copy())
        bucket = checkpoint.sealed(bucket)
        ranks, rank = self._everyone.size, self._everyone.me
        return {"format": checkpoint.FORMAT, "ranks": ranks, "rank": rank, "steps": self._rounds, "buckets": [bucket]}

    def gathered_state_dict(self) -> dict[str, Any] | None:
        """All ranks' states as one, on rank 0 (None on the others). It can be loaded on any number of ranks."""
        states = checkpoint.gather(self._everyone, self.state_dict(), self._timeout)
        return None if states is None else checkpoint.join_states(states)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a ``state_dict()`` of this rank, or a gathered one, also of another number of ranks.

        If the state of one rank is damaged or does not fit, all ranks raise ValueError, and nothing has changed.
        """
        self._require_settled("load_state_dict()")

        def check() -> tuple[int, npt.NDArray[Any] | None]:
            mine = checkpoint.state_for(state, self._everyone.size, self._everyone.me)
            checkpoint.require_fitting(mine, self._parameters)
            (bucket,) = checkpoint.lay_out_anew(mine["buckets"], [self._vector.describe("rna")])
            residual = bucket.get("residual")
            return mine["steps"], None if residual is None else saved.finite(residual.numpy(), "the residual")

        rounds, residual = check_together(self._everyone, check, self._timeout, "load_state_dict")
        if isinstance(self._part, SparsePart) and residual is not None:
            self._part.reducer.owe(residual)
        self._rounds = rounds

    def _require_settled(self, call: str) -> None:
        if self._box.error is not None:
            raise self._box.error
        if not (self._finished or self._fresh):
            raise RuntimeError(f"{call}: rounds are under way; call settle() first, on all ranks")

    # -- groups, from the moment they form until they meet -------------------------------------------------------------

    def _open(self, groups: Groups) -> None:
        self._groups = groups
        self._group = self._everyone.subgroup(next(group for group in groups if self._everyone.me in group))
        self._version = 0  # rounds applied since
        self._fresh = True
        self._between: Between | None = None
        if self._sync.groups is not None:
            regroups, dtype = self._sync.groups == "auto", self._vector.dtype
            self._between = Between(self._everyone, groups, dtype, self._pace, regroups=regroups, timeout=self._timeout)
        kind = SummingBox if isinstance(self._part, SparsePart) else WeightingBox
        self._box: GradientBox = kind(self._sync.staleness, self._timeout, self._metrics)
        self._engine = Engine(
            self._group,
            self._box,
            self._part,
            self._sync.policy,
            patience=self._sync.patience,
            timeout=self._timeout,
            terms=lambda: self._terms,
            between=self._between,
        )
        self._engine.start()
        self._resumed = time.perf_counter()

    def _meet(self) -> None:
        """Until all ranks have come to stay. Others may have come just to form other groups, and go on."""
        while not self._come_together(stays=True):
            self._open(self._fitting_groups())

    def _come_together(self, stays: bool) -> bool:
        """Ends all rounds and makes all ranks the same. True if everyone stays."""
        self._box.close()
        self._engine.join()
        self._apply()
        self._local.take_back()  # also if its gradient was dropped and no round came
        self._traffic.add(self._engine.traffic)
        self._communicated += self._engine.seconds
        if self._between is None:
            return True
        if len(self._groups) > 1:
            self._average()
            broadcast_optimizer(self._everyone, self._optimizer, self._timeout)
        mine = {"stays": stays, "pace": self._pace.seconds}
        everyone = gather_json(self._everyone, mine, self._timeout, "RNA's meeting")
        self._paces = [told["pace"] for told in everyone]
        return all(told["stays"] for told in everyone)

    def _fitting_groups(self) -> Groups:
        return group_by_speed(self._paces) if self._sync.groups == "auto" else self._groups

    def _average(self) -> None:
        """Every rank counts alike, so a group counts as much as it has ranks."""
        share = self._vector.weights() / self._everyone.size
        mean = np.empty_like(share)
        average = dense_ring(self._everyone.size, self._everyone.me, share, mean)
        task = Task(shared_channel(self._everyone), average, self._timeout, "RNA's average of all groups")
        began = time.perf_counter()
        task.wait()
        self._communicated += time.perf_counter() - began
        self._traffic.add(task.traffic)
        self._vector.set_weights(mean)

    # -- a step --------------------------------------------------------------------------------------------------------

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        if self._finished:
            return self._own_step(closure)
        if closure is not None:
            raise TypeError("step(closure) cannot be distributed: compute gradients with backward() and call step()")
        try:
            self._distributed_step()
        except Exception as error:
            self._box.fail(error)  # the others must not wait for a rank that cannot go on
            raise
        return None

    def _on_gradient(self, parameter: torch.nn.Parameter) -> None:
        if (problem := self._arrivals.note(self._names[id(parameter)])) is not None:
            self._box.fail(problem)
            raise problem

    def _distributed_step(self) -> None:
        self._arrivals.forget()
        if (problem := self._problem()) is not None:
            raise problem
        self._terms = self._tell_terms()
        grad = self._vector.gradient()
        self._vector.require_finite(grad, self._everyone.me)
        self._pace.note(time.perf_counter() - self._resumed)
        self._fresh = False
        with timeline.span("deposit"):
            self._box.deposit(grad, self._version)
        if isinstance(self._sync.policy, All):
            with timeline.span("wait for the round"):
                self._box.wait()
        if self._between is not None and self._between.wants_regroup:
            self._come_together(stays=False)
            self._open(self._fitting_groups())
        elif not self._apply() and self._sync.local_steps:
            self._local.step()
        self._resumed = time.perf_counter()

    def _problem(self) -> Exception | None:
        """What the user has to mend first, if anything."""
        if self._amp.problem() is not None:
            return RuntimeError(
                "this optimizer is stepped by a GradScaler, which RNA does not know: train in bfloat16 or float32 "
                "without one, or use SparDL or Dense with distribute(..., scaler=scaler)"
            )
        return self._unchanged.problem()

    def _apply(self) -> int:
        """One step of the optimizer for every round that has finished and had contributors; how many have finished."""
        finished = self._box.collect()
        if finished:
            self._local.take_back()
        for result, terms in finished:
            self._version += 1
            if isinstance(result, Shift):
                self._vector.move_weights(result.delta)
                continue
            with timeline.span("apply", round=self._rounds):
                moved = self._round_step.apply(result, terms, self._group.size)
            if not moved:
                self._skipped += 1
                continue
            self._rounds += 1
            self._applied += 1
            self._entries += result.vector.nnz
            if self._between is not None and self._between.is_lead and self._rounds % self._sync.period == 0:
                self._between.push(self._vector.weights())
        return len(finished)
