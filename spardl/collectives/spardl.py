"""SparDL's sparse all-reduce, composed: Spar-Reduce-Scatter, Spar-All-Gather between teams, gather, residuals."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy.typing as npt

from spardl import saved, schedule
from spardl.collectives.allgather import gather
from spardl.collectives.b_sag import Width, b_sag
from spardl.collectives.error_feedback import ErrorFeedback, Outcome
from spardl.collectives.frames import joined
from spardl.collectives.party import Party
from spardl.collectives.r_sag import r_sag
from spardl.collectives.spar_reduce_scatter import spar_reduce_scatter
from spardl.effects import Collective
from spardl.kernels.api import Kernels, Pair, Values
from spardl.residual import Ledger
from spardl.selection import Selector, Thresholds
from spardl.wire import Codec


def choose_sag(sag: str, teams: int) -> str:
    """``"r"`` or ``"b"`` for ``"auto"``: R-SAG where it applies."""
    return sag if sag != "auto" else "r" if schedule.is_power_of_two(teams) else "b"


class Learnt(NamedTuple):
    """What SparDL remembers besides the residual."""

    thresholds: Thresholds
    width: Width  # of B-SAG


class SparDL(ErrorFeedback[Learnt]):
    """One rank's part in SparDL."""

    def __init__(
        self,
        size: int,
        k: int,
        *,
        rank: int,
        layout: schedule.Teams,
        dtype: npt.DTypeLike,
        kernels: Kernels,
        codec: Codec,
        sag: str = "auto",
        residual: str = "global",
    ) -> None:
        self.layout, self.place = layout, layout.place(rank)
        self._sag = choose_sag(sag, layout.teams)
        self._policy = residual
        self._elsewhere: dict[schedule.Teams, Learnt] = {}  # what was learnt with other numbers of ranks
        super().__init__(size, k, rank=rank, ranks=layout.ranks, dtype=dtype, kernels=kernels, codec=codec)

    def regroup(self, layout: schedule.Teams, rank: int) -> None:
        """Other ranks from the next reduce on: the residual stays, what was learnt with as many ranks comes back."""
        self._elsewhere[self.layout] = self._memory
        self.layout, self.place, self.rank, self.ranks = layout, layout.place(rank), rank, layout.ranks
        self._sag = choose_sag("auto", layout.teams)
        self._frames = replace(self._frames, rank=rank)
        self.rebudget(self._k)
        self._memory = self._elsewhere.get(layout, self._memory)

    def _budget(self, k: int) -> Learnt:
        self._k = k
        self._blocks = schedule.cut_blocks(self.size, k, self.layout.per_team)
        self._selector = Selector(self._kernels, self._blocks, self.dtype, self.rank)
        own_budget = self._blocks.budgets[self.place.position]
        width = Width.initial(k, own_budget, self.layout.teams, self.layout.ranks)
        return Learnt(self._selector.thresholds, width)

    def _run(self, grad: Values, acc: Values, memory: Learnt) -> Collective[Outcome[Learnt]]:
        party = self._party(acc, memory.thresholds)
        width = memory.width
        if self.layout.teams == 1:
            held = yield from spar_reduce_scatter(party, grad, self._residual, party.budget)
        elif self._sag == "r":
            held = yield from spar_reduce_scatter(party, grad, self._residual, party.budget)
            held = yield from r_sag(party, held)
        else:
            width = width.adjusted(party.budget, self.layout.teams)
            # The h largest of the k largest are the h largest: B-SAG's narrowing needs no selection of its own.
            held = yield from spar_reduce_scatter(party, grad, self._residual, width.h)
            held, width = yield from b_sag(party, held, width)
        blocks = yield from _gather(party, held)
        corrections = party.ledger.settle_later(acc, [indices for indices, _ in blocks], self._selector.overlays)
        result = joined(blocks, self.size, self._kernels.arrays)
        return Outcome(result, Learnt(self._selector.learnt(), width), corrections)

    def _party(self, acc: Values, thresholds: Thresholds) -> Party:
        self._selector.thresholds = thresholds
        self._selector.start(acc)
        ledger = Ledger(self._kernels, self.place.position, self._policy)
        tools = (self._kernels, self._codec, self._frames, self._selector, ledger)
        return Party(self.rank, self.layout, self._blocks, *tools)

    def _save(self, memory: Learnt) -> dict[str, Any]:
        width = memory.width
        return {
            "thresholds": memory.thresholds.to_array(),
            "width": (width.h, width.step, width.doubling, width.seen),
        }

    def _load(self, state: Mapping[str, Any]) -> Learnt:
        budgets = self._blocks.budgets
        thresholds = Thresholds.from_array(saved.part(state, "thresholds"), len(budgets))
        width = Width.from_saved(saved.part(state, "width"), budgets[self.place.position], self.layout.teams)
        return Learnt(thresholds, width)


def _gather(party: Party, held: Pair) -> Collective[list[Pair]]:
    """The final blocks of all positions, in order. Every team does the same with the same bits."""
    team, position = party.layout.team_of(party.rank), party.position
    if len(team) == 1:
        return [held]
    held = party.as_on_the_wire(held, party.layout.teams)
    frames = yield from gather(team, position, party.frame(position, held))
    others = [*range(position), *range(position + 1, len(team))]
    blocks = party.frames.read_all(
        [frames[other] for other in others],
        [team[other] for other in others],
        [party.bounds_of(other) for other in others],
    )
    return [*blocks[:position], held, *blocks[position:]]
