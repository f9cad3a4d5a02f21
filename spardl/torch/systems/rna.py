"""RNA: training deposits gradients and applies whatever rounds have finished."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl import kernels, timeline
from spardl.agreement import gather_json
from spardl.collectives.dense_ring import dense_ring
from spardl.effects import Process
from spardl.protocols.rna.grouping import group_by_speed
from spardl.protocols.rna.paces import Groups, Pace
from spardl.protocols.rna.parts import DensePart, Part, Shift, SparsePart
from spardl.protocols.rna.policies import All
from spardl.protocols.rna.program import rna
from spardl.protocols.rna.training import Round, Training
from spardl.protocols.rna.waiting import Summed, Weighted
from spardl.runtime.process import Program
from spardl.timeline.traced import traced_kernels
from spardl.torch.local_steps import LocalSteps
from spardl.torch.round_step import RoundStep, require_fitting
from spardl.torch.start import broadcast_optimizer
from spardl.torch.sync import RNA, SparDL
from spardl.torch.systems.handle import SystemHandle
from spardl.torch.systems.system import Setup, System
from spardl.torch.terms import Terms
from spardl.wire import Codec


class RnaSystem(System):
    """One rank's RNA."""

    name = "RNA"

    def __init__(self, sync: RNA, setup: Setup) -> None:
        super().__init__(setup)
        require_fitting(setup.optimizer, sync)
        self._sync = sync
        self._part = self._make_part()
        self._local = LocalSteps(setup.optimizer, self._vector)
        self._terms = Terms(setup.optimizer)
        self._round_step = RoundStep(
            setup.optimizer, setup.step, self._vector, self._terms, linear_scaling=sync.linear_scaling
        )
        self._pace = Pace()
        self.groups: Groups = sync.first_groups(setup.group.size)
        self._hierarchical = sync.groups is not None
        self._paces: list[float] = []  # by rank, as of the last meeting

    def _make_part(self) -> Part:
        reduce, size, dtype = self._sync.reduce, self._vector.size, self._vector.dtype
        if not isinstance(reduce, SparDL):
            return DensePart(size, dtype)
        chosen = traced_kernels(timeline.current(), kernels.load_for_host(reduce.backend))
        k = max(1, round(reduce.density_at(0) * size))
        return SparsePart(size, k, dtype, chosen, Codec(chosen, reduce.wire, reduce.wire_dtype))

    # -- from the moment that groups form until they meet --------------------------------------------------------------

    def open(self) -> Program:
        if self._sync.groups == "auto" and self._paces:
            self.groups = group_by_speed(self._paces)
        sync, me, timeout = self._sync, self._setup.group.me, self._setup.timeout
        self._group_size = next(len(group) for group in self.groups if me in group)
        self._version = 0  # rounds applied since
        self._training = Training(me, self.groups, sync.staleness, **self._waiting())
        program = rna(
            me,
            self.groups,
            self._part,
            Summed() if isinstance(self._part, SparsePart) else Weighted(sync.staleness),
            sync.policy,
            patience=sync.patience,
            limit=timeout,
            terms=self._terms.tell(),
            hierarchical=self._hierarchical,
            regroups=sync.groups == "auto",
        )
        self._resumed = time.perf_counter()
        return program

    def step(self) -> Process[None]:
        terms, gradient = self._terms.tell(), self._vector.gradient()
        self._vector.require_finite(gradient, self._setup.group.me)
        self._pace.note(time.perf_counter() - self._resumed)
        pace = self._pace.seconds if self._hierarchical else None
        with timeline.span("deposit"):
            yield from self._training.deposit(gradient, self._version, terms=terms, pace=pace)
        if isinstance(self._sync.policy, All):
            with timeline.span("wait for the round"):
                yield from self._training.wait()
        rounds = yield from self._training.collect()
        yield from self._apply(rounds)
        if not (rounds or self.wants_meeting) and self._sync.local_steps:
            self._local.step()
        self._resumed = time.perf_counter()

    def close(self) -> Process[None]:
        yield from self._training.close()
        yield from self._apply((yield from self._training.collect()))
        self._local.take_back()  # also if its gradient was dropped and no round came

    def _apply(self, rounds: Sequence[Round]) -> Process[None]:
        """One step of the optimizer for every round that had contributors."""
        if rounds:
            self._local.take_back()
        for result, terms in rounds:
            self._version += 1
            if isinstance(result, Shift):
                self._vector.move_weights(result.delta)
                continue
            with timeline.span("apply", round=self.updates):
                moved = self._round_step.apply(result, terms, self._group_size)
            if not moved:
                self.totals.skipped += 1
                continue
            self.updates += 1
            self.totals.applied += 1
            self.totals.entries += result.vector.nnz
            if self._hierarchical and self.updates % self._sync.period == 0:
                yield from self._push()

    def _push(self) -> Process[None]:
        if self._training.leads_one_of_several:
            yield from self._training.push(self._vector.weights())

    # -- meetings ------------------------------------------------------------------------------------------------------

    @property
    def wants_meeting(self) -> bool:
        return self._training.wants_regroup

    def meet(self, stays: bool) -> bool:
        """Others may have come just to form other groups, and go on."""
        if not self._hierarchical:
            return True
        group, timeout = self._setup.group, self._setup.timeout
        if len(self.groups) > 1:
            self._average()
            broadcast_optimizer(group, self._setup.optimizer, timeout)
        mine = {"stays": stays, "pace": self._pace.seconds}
        everyone = gather_json(group, mine, timeout, "RNA's meeting")
        self._paces = [told["pace"] for told in everyone]
        return all(told["stays"] for told in everyone)

    def _average(self) -> None:
        """Every rank counts alike, so a group counts as much as it has ranks."""
        group = self._setup.group
        share = self._vector.weights() / group.size
        mean = np.empty_like(share)
        self._together(dense_ring(group.size, group.me, share, mean), "RNA's average of all groups")
        self._vector.set_weights(mean)

    # -- what is owed --------------------------------------------------------------------------------------------------

    @property
    def residual(self) -> npt.NDArray[Any] | None:
        return self._part.reducer.residual if isinstance(self._part, SparsePart) else None

    def owe(self, residual: npt.NDArray[Any]) -> None:
        if isinstance(self._part, SparsePart):
            self._part.reducer.owe(residual)


class RnaHandle(SystemHandle):
    """What ``distribute`` returns for RNA."""

    _system: RnaSystem

    @property
    def groups(self) -> Groups:
        """Which ranks reduce with each other; one group unless RNA was asked for several."""
        return self._system.groups
