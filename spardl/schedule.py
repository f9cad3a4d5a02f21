"""Who talks to whom: pure functions of the group's size and one's place in it.

The collectives walk these rounds, the cost model sums them up, and the tests compare both with counted traffic.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one rank: a message of blocks ``sends`` to ``to``, one of blocks ``receives`` from ``source``."""

    to: int
    source: int
    sends: tuple[int, ...]
    receives: tuple[int, ...]


class Blocks(NamedTuple):
    """How n elements and a budget of k entries are cut into p blocks."""

    bounds: npt.NDArray[np.int64]  # block j is bounds[j]:bounds[j+1]
    budgets: tuple[int, ...]


def cut_blocks(n: int, k: int, p: int) -> Blocks:
    """Block j is [⌊jn/p⌋, ⌊(j+1)n/p⌋) with budget ⌊(j+1)k/p⌋ − ⌊jk/p⌋."""
    bounds = np.array([j * n // p for j in range(p + 1)], np.int64)
    budgets = tuple((j + 1) * k // p - j * k // p for j in range(p))
    return Blocks(bounds, budgets)


def ceil_log2(p: int) -> int:
    return (p - 1).bit_length()


def is_power_of_two(p: int) -> bool:
    return p & (p - 1) == 0


def team_counts(ranks: int) -> list[int]:
    """The numbers of equal teams that ``ranks`` can be split into."""
    return [d for d in range(1, ranks + 1) if ranks % d == 0]


def spar_reduce_scatter(p: int, w: int) -> list[Round]:
    """Position w's ⌈log₂p⌉ rounds; afterwards w holds block w. Distances halve: 2^(l-1), …, 2, 1."""
    rounds = []
    for i in reversed(range(ceil_log2(p))):
        s = 1 << i
        source = (w - s) % p
        rounds.append(Round((w + s) % p, source, _bag(p, w, s), _bag(p, source, s)))
    return rounds


def _bag(p: int, w: int, s: int) -> tuple[int, ...]:
    """The blocks that position w sends over distance s."""
    return tuple(j % p for j in range(w + s, min(w + 2 * s, w + p)))


def bruck(p: int, w: int) -> list[Round]:
    """All-gather in ⌈log₂p⌉ rounds for any p; block j is what position j contributes. Distances double."""
    rounds = []
    for i in range(ceil_log2(p)):
        s = 1 << i
        count = min(s, p - s)
        source = (w + s) % p
        held, coming = ([(first + j) % p for j in range(count)] for first in (w, source))
        rounds.append(Round((w - s) % p, source, tuple(held), tuple(coming)))
    return rounds


def recursive_doubling(p: int, w: int) -> list[Round]:
    """All-gather in log₂p rounds for powers of two: each pair exchanges all it has."""
    if not is_power_of_two(p):
        raise ValueError(f"recursive doubling: expected a power of two of ranks, got {p}; use Bruck's algorithm")
    rounds = []
    for i in range(ceil_log2(p)):
        s = 1 << i
        partner = w ^ s
        mine, theirs = (tuple(range(first & -s, (first & -s) + s)) for first in (w, partner))
        rounds.append(Round(partner, partner, mine, theirs))
    return rounds


def ring_reduce_scatter(p: int, w: int) -> list[Round]:
    """p−1 rounds around the ring; block j is summed in the order j, j+1, …, and ends on position j−1."""
    return [Round((w + 1) % p, (w - 1) % p, ((w - s) % p,), ((w - s - 1) % p,)) for s in range(p - 1)]


def ring_gather(p: int, w: int) -> list[Round]:
    """p−1 rounds around the ring, starting with block w+1 on position w."""
    return [Round((w + 1) % p, (w - 1) % p, ((w + 1 - s) % p,), ((w - s) % p,)) for s in range(p - 1)]


def binomial_tree(p: int, w: int) -> tuple[int | None, list[int]]:
    """Broadcast from position 0 in ⌈log₂p⌉ rounds: whom w receives from (None for 0), then whom it sends to."""
    low = w & -w if w else 1 << ceil_log2(p)  # distance to the parent
    children = [w + (1 << i) for i in reversed(range(low.bit_length() - 1)) if w + (1 << i) < p]
    return (w - low if w else None), children


def gather(p: int, w: int) -> list[Round]:
    """SparDL's last phase: recursive doubling where it applies, else Bruck."""
    return recursive_doubling(p, w) if is_power_of_two(p) else bruck(p, w)


class Place(NamedTuple):
    """A rank's coordinates: rank = team · p + position."""

    team: int
    position: int


@dataclass(frozen=True, slots=True)
class Teams:
    """P ranks as d teams of p."""

    ranks: int
    teams: int

    @property
    def per_team(self) -> int:
        return self.ranks // self.teams

    def place(self, rank: int) -> Place:
        return Place(*divmod(rank, self.per_team))

    def team_of(self, rank: int) -> tuple[int, ...]:
        """The ranks of the same team, by position."""
        first = rank - self.place(rank).position
        return tuple(range(first, first + self.per_team))

    def peers_of(self, rank: int) -> tuple[int, ...]:
        """The ranks of equal position, by team."""
        return tuple(range(self.place(rank).position, self.ranks, self.per_team))


def spardl(ranks: int, teams: int, rank: int, sag: str) -> list[Round]:
    """All rounds of SparDL for one rank, peers as ranks: reduce-scatter, all-gather between teams, gather."""
    layout = Teams(ranks, teams)
    team, position = layout.place(rank)
    mates, peers = layout.team_of(rank), layout.peers_of(rank)
    between = r_sag(teams, team, position) if sag == "r" else b_sag(teams, team)
    return [
        Round(group[r.to], group[r.source], r.sends, r.receives)
        for group, rounds in (
            (mates, spar_reduce_scatter(layout.per_team, position)),
            (peers, between),
            (mates, gather(layout.per_team, position)),
        )
        for r in rounds
    ]


def r_sag(teams: int, team: int, block: int) -> list[Round]:
    """R-SAG: in round t all of the one block is exchanged with team XOR 2^t."""
    return [Round(r.to, r.source, (block,), (block,)) for r in recursive_doubling(teams, team)]


def b_sag(teams: int, team: int) -> list[Round]:
    """B-SAG: Bruck over the teams; "block" j is here what team j contributes."""
    return bruck(teams, team)
