"""SparDL's sparse all-reduce, composed: Spar-Reduce-Scatter, Spar-All-Gather between teams, gather, residuals."""

from typing import Any

import numpy as np
import numpy.typing as npt

from spardl import schedule
from spardl.collectives.b_sag import Width, b_sag
from spardl.collectives.bruck import bruck
from spardl.collectives.party import Party
from spardl.collectives.r_sag import r_sag
from spardl.collectives.recursive_doubling import recursive_doubling
from spardl.collectives.spar_reduce_scatter import spar_reduce_scatter
from spardl.effects import Collective, Flush
from spardl.kernels import memory
from spardl.kernels.api import Kernels, Pair, Values
from spardl.residual import Ledger
from spardl.selection import Selector, Thresholds
from spardl.sparse import SparseVector
from spardl.wire import Codec


def choose_sag(sag: str, teams: int) -> str:
    """``"r"`` or ``"b"`` for ``"auto"``: R-SAG where it applies."""
    return sag if sag != "auto" else "r" if schedule.is_power_of_two(teams) else "b"


class SparDL:
    """One rank's part, with what it remembers between reduces: residual, thresholds, SAG width.

    ``reduce`` is a transaction: these change in its last step, after all that can fail.
    """

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
        self.size, self.rank, self.layout = size, rank, layout
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._sag = choose_sag(sag, layout.teams)
        self._policy = residual
        self._kernels, self._codec = kernels, codec
        self.rebudget(k)
        self.residual: Values = np.empty(size, self.dtype)
        self.residual.fill(
            0
        )  # not np.zeros: calloc'ed memory is not backed by huge pages, which costs 10 % of the pass
        self._spare: Values = np.empty(size, self.dtype)
        self._before: tuple[Thresholds, Width] | None = None

    def rebudget(self, k: int) -> None:
        """Keeps ``k`` entries from now on. The residual stays; the rest was learnt for another k and is forgotten."""
        self._blocks = schedule.cut_blocks(self.size, k, self.layout.per_team)
        self._selector = Selector(self._kernels, self._blocks, self.dtype, self.rank)
        own_budget = self._blocks.budgets[self.layout.place(self.rank).position]
        self._width = Width.initial(k, own_budget, self.layout.teams, self.layout.ranks)
        self._before = None

    def reduce(self, grad: Values) -> Collective[SparseVector]:
        """The sum over ranks of gradient and residual, its largest entries only; the rest becomes residual."""
        self._before = None  # from here on the spare buffer no longer holds the residual of the reduce before
        self._selector.start(self._spare)
        ledger = Ledger(self._kernels, self.layout.per_team, self.layout.place(self.rank).position, self._policy)
        party = Party(
            self.rank, self.layout, self._blocks, self.dtype, self._kernels, self._codec, self._selector, ledger
        )
        held = yield from spar_reduce_scatter(party, grad, self.residual)
        width = self._width
        if self.layout.teams > 1:
            if self._sag == "r":
                held = yield from r_sag(party, held)
            else:
                width = width.adjusted(party.budget, self.layout.teams)
                held, width = yield from b_sag(party, held, width)
        blocks = yield from _gather(party, held)

        ledger.settle(self._spare, [indices for indices, _ in blocks], self._selector.overlays)
        yield Flush("delivery of the result")  # a peer that is gone must be noticed before anything changes here
        self._before = (self._selector.thresholds, self._width)
        self.residual, self._spare = self._spare, self.residual
        self._selector.commit()
        self._width = width
        indices, values = (memory.concatenate(part) for part in zip(*blocks, strict=True))
        return SparseVector.trusted(indices, values, self.size)

    def undo(self) -> None:
        """Takes the last reduce back. It must have succeeded, and no other have been begun since."""
        if self._before is None:
            raise RuntimeError("undo: there is no reduce to take back")
        self.residual, self._spare = self._spare, self.residual
        self._selector.thresholds, self._width = self._before
        self._before = None

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly, as copies."""
        thresholds = self._selector.thresholds
        return {
            "residual": self.residual.copy(),
            "thresholds": np.stack([thresholds.last, thresholds.growth, thresholds.slack]),
            "width": (self._width.h, self._width.step, self._width.doubling, self._width.seen),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from ``state``, which must be of a reducer built alike (the façade checks)."""
        self._before = None
        np.copyto(self.residual, state["residual"])
        self._selector.thresholds = Thresholds(*np.array(state["thresholds"]))
        self._width = Width(*state["width"])


def _gather(party: Party, held: Pair) -> Collective[list[Pair]]:
    """The final blocks of all positions, in order. Every team does the same with the same bits."""
    team, position = party.layout.team_of(party.rank), party.position
    if len(team) == 1:
        return [held]
    held = party.as_on_the_wire(held, party.layout.teams)
    gather = recursive_doubling if schedule.is_power_of_two(len(team)) else bruck
    frames = yield from gather(team, position, party.frame(position, held))
    return [held if block == position else party.read(frame, team[block]) for block, frame in enumerate(frames)]
