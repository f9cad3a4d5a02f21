"""B-SAG: Bruck between any number of teams, with a top-h before it that adapts to how much the teams overlap."""

from dataclasses import dataclass, replace

from spardl.collectives.bruck import bruck
from spardl.collectives.party import Party
from spardl.effects import Collective
from spardl.kernels.api import Pair


@dataclass(frozen=True, slots=True)
class Width:
    """How many entries to contribute (h), and the paper's Algorithm 2 that adjusts it from reduce to reduce."""

    h: int
    step: int
    doubling: bool = False
    seen: int | None = None  # entries after the last reduce's addition

    @classmethod
    def initial(cls, k: int, budget: int, teams: int, ranks: int) -> "Width":
        return cls(-(-budget // teams), max(1, round(0.01 * k * (teams - 1) / ranks)))

    def adjusted(self, budget: int, teams: int) -> "Width":
        """The width for this reduce: grown while the sum stayed within the budget, else shrunk."""
        if self.seen is None:
            return self
        if (self.seen > budget) != (self.step > 0):  # the direction is right: go on, faster every other time
            step, doubling = (self.step * 2, False) if self.doubling else (self.step, True)
        else:  # turn round at half the pace, but never stop
            step, doubling = -int(self.step / 2) or (-1 if self.step > 0 else 1), False
        h = min(max(self.h + step, -(-budget // teams)), budget)
        return Width(h, step, doubling)


def b_sag(party: Party, held: Pair, width: Width) -> Collective[tuple[Pair, Width]]:
    """The entries kept of the sum over all teams, the same on all ranks of equal position; and the next width.

    ``held`` are the h largest of the held block already.
    """
    peers = party.layout.peers_of(party.rank)
    mine = party.as_on_the_wire(held, 1)
    frames = yield from bruck(peers, party.team, party.frame(party.position, mine))
    # In team order, so that all peers get the same bits.
    total = party.kernels.add_many(party.frames.read_all(frames, peers))
    kept = party.keep_largest(total, len(peers))
    return kept, replace(width, seen=party.kernels.arrays.count_nonzero(total[1]))
