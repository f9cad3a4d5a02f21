"""B-SAG: Bruck between any number of teams, with a top-h before it that adapts to how much the teams overlap."""

from dataclasses import dataclass, replace
from typing import Any

from spardl import saved
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
        step = max(1, round(0.01 * k * (teams - 1) / ranks))
        return cls(cls.bounds(budget, teams)[0], min(step, cls.longest_step(budget, teams)))

    @classmethod
    def from_saved(cls, fields: Any, budget: int, teams: int) -> "Width":
        """Of (h, step, doubling, seen). Raises ValueError if no width of that budget and number of teams is so."""
        h, step, doubling, seen = saved.sequence(fields, "a width", 4)
        saved.integer(h, "h", *cls.bounds(budget, teams))
        longest = cls.longest_step(budget, teams)
        saved.integer(step, "the step of h", -longest, longest)
        if step == 0 or not isinstance(doubling, bool):
            raise saved.unfit("a width", "with a step other than 0 and a flag", fields)
        return cls(h, step, doubling, None if seen is None else saved.integer(seen, "a count of entries", 0))

    @staticmethod
    def bounds(budget: int, teams: int) -> tuple[int, int]:
        """The least and the greatest h: all teams have the same indices, or all have different ones."""
        return -(-budget // teams), budget

    @staticmethod
    def longest_step(budget: int, teams: int) -> int:
        """From one bound to the other. At a bound a step without limit would double for ever, and then take as long
        to come back."""
        least, greatest = Width.bounds(budget, teams)
        return max(1, greatest - least)

    def adjusted(self, budget: int, teams: int) -> "Width":
        """The width for this reduce: grown while the sum stayed within the budget, else shrunk."""
        if self.seen is None:
            return self
        grows, pace = self.step > 0, abs(self.step)
        if (self.seen > budget) != grows:  # the direction is right: go on, faster every other time
            pace, doubling = (pace * 2, False) if self.doubling else (pace, True)
        else:  # turn round at half the pace, but never stop
            grows, pace, doubling = not grows, max(1, pace // 2), False
        pace = min(pace, self.longest_step(budget, teams))
        step = pace if grows else -pace
        least, greatest = self.bounds(budget, teams)
        return Width(min(max(self.h + step, least), greatest), step, doubling)

    def after(self, seen: int) -> "Width":
        """With the count of a reduce's addition, which the next one goes by."""
        return replace(self, seen=seen)


def b_sag(party: Party, held: Pair, width: Width) -> Collective[tuple[Pair, Width]]:
    """The entries kept of the sum over all teams, the same on all ranks of equal position; and the next width.

    ``held`` are the h largest of the held block already.
    """
    peers = party.layout.peers_of(party.rank)
    mine = party.as_on_the_wire(held, 1)
    frames = yield from bruck(peers, party.team, party.frame(party.position, mine))
    # In team order, so that all peers get the same bits.
    bounds = [party.bounds_of(party.position)] * len(peers)
    total = party.kernels.add_many(party.frames.read_all(frames, peers, bounds))
    kept = party.keep_largest(total, len(peers))
    return kept, width.after(party.kernels.arrays.count_nonzero(total[1]))
