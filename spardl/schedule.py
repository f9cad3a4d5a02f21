"""Who talks to whom: pure functions of the group's size and one's place in it.

The collectives walk these rounds, the cost model sums them up, and the tests compare both with counted traffic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one rank: a message of blocks ``sends`` to ``to``, one of blocks ``receives`` from ``source``."""

    to: int
    source: int
    sends: tuple[int, ...]
    receives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Give:
    """A round in which a rank only sends."""

    to: int
    sends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """A round in which a rank only receives."""

    source: int
    receives: tuple[int, ...]


Step: TypeAlias = Round | Give | Take


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


def largest_power_of_two(p: int) -> int:
    """Not above p."""
    return 1 << (p.bit_length() - 1)


def team_counts(ranks: int) -> list[int]:
    """The numbers of equal teams that ``ranks`` can be split into."""
    return [d for d in range(1, ranks + 1) if ranks % d == 0]


@lru_cache(maxsize=1024)  # asked for in every reduce
def spar_reduce_scatter(p: int, w: int) -> Sequence[Round]:
    """Position w's ⌈log₂p⌉ rounds; afterwards w holds block w. Distances halve: 2^(l-1), …, 2, 1."""
    rounds = []
    for i in reversed(range(ceil_log2(p))):
        s = 1 << i
        source = (w - s) % p
        rounds.append(Round((w + s) % p, source, _bag(p, w, s), _bag(p, source, s)))
    return rounds


@lru_cache(maxsize=1024)
def leave_before(p: int, w: int) -> Sequence[int]:
    """For every round of Spar-Reduce-Scatter, how many messages of position w leave before the round's is waited for.

    All up to its own, and those for whose blocks nothing is still to come: some, where p is not a power of two.
    """
    rounds = spar_reduce_scatter(p, w)
    numbers, leave = [], 0
    for waiting in range(len(rounds)):
        while leave < len(rounds) and not any(
            block in r.receives for r in rounds[waiting:leave] for block in rounds[leave].sends
        ):
            leave += 1
        numbers.append(leave)
    return numbers


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


def fold_in(p: int, w: int, blocks: tuple[int, ...]) -> list[Step]:
    """At most one round, after which a power of two of ranks, the first ones, hold everybody's contribution."""
    core = largest_power_of_two(p)
    if w >= core:
        return [Give(w - core, blocks)]
    return [Take(w + core, blocks)] if w + core < p else []


def fold_out(p: int, w: int, blocks: tuple[int, ...]) -> list[Step]:
    """At most one round, in which those that were folded in get the result."""
    core = largest_power_of_two(p)
    if w >= core:
        return [Take(w - core, blocks)]
    return [Give(w + core, blocks)] if w + core < p else []


def recursive_halving(p: int, w: int) -> list[Round]:
    """Reduce-scatter in log₂p rounds for powers of two: pairs exchange halves; afterwards w holds block w."""
    rounds = []
    for i in reversed(range(ceil_log2(p))):
        s = 1 << i
        partner = w ^ s
        theirs, mine = (tuple(range(first & -s, (first & -s) + s)) for first in (partner, w))
        rounds.append(Round(partner, partner, theirs, mine))
    return rounds


class Phases(NamedTuple):
    """A dense all-reduce: rounds in which what arrives is added, then rounds in which it is the result."""

    reduce: list[Step]
    gather: list[Step]
    blocks: int


def dense_ring(p: int, w: int) -> Phases:
    """2(p−1) rounds of one of p blocks: the fewest bytes there can be."""
    return Phases([*ring_reduce_scatter(p, w)], [*ring_gather(p, w)], p)


def dense_rabenseifner(p: int, w: int) -> Phases:
    """Recursive halving, then doubling: 2log₂p rounds and as few bytes as the ring, for powers of two.

    Other numbers fold the ranks past a power of two in first and out last: two rounds of everything more.
    """
    core = largest_power_of_two(p)
    everything = tuple(range(core))
    halving, doubling = (rounds(core, w) if w < core else [] for rounds in (recursive_halving, recursive_doubling))
    reduce = [*fold_in(p, w, everything), *halving]
    return Phases(reduce, [*doubling, *fold_out(p, w, everything)], core)


def dense_recursive_doubling(p: int, w: int) -> Phases:
    """log₂p rounds of everything, for powers of two; others fold, as above. The fewest rounds: for short gradients."""
    core = largest_power_of_two(p)
    pairs = recursive_doubling(core, w) if w < core else []
    reduce = [*fold_in(p, w, (0,)), *(Round(r.to, r.source, (0,), (0,)) for r in pairs)]
    return Phases(reduce, fold_out(p, w, (0,)), 1)


def topk_a(p: int, w: int) -> Sequence[Round]:
    """⌈log₂p⌉ rounds; "block" j is the selection of rank j."""
    return gather(p, w)


def gtopk(p: int, w: int) -> list[Step]:
    """Up a binomial tree and down again: 2⌈log₂p⌉ rounds of k entries; a rank sits some of them out."""
    parent, children = binomial_tree(p, w)
    steps: list[Step] = [Take(child, (0,)) for child in reversed(children)]
    if parent is not None:
        steps += [Give(parent, (0,)), Take(parent, (0,))]
    return [*steps, *(Give(child, (0,)) for child in children)]


def direct_scatter(p: int, w: int) -> list[Round]:
    """p−1 rounds: to each of the others its block. The order rotates, so that nobody gets all messages at once."""
    return [Round((w + s) % p, (w - s) % p, ((w + s) % p,), (w,)) for s in range(1, p)]


def topk_dsa(p: int, w: int) -> list[Round]:
    """p−1 rounds to split, ⌈log₂p⌉ to gather."""
    return [*direct_scatter(p, w), *gather(p, w)]


class OkTopk(NamedTuple):
    """Ok-Topk's rounds: where entries go, where a few numbers go, and where the result goes."""

    split: Sequence[Round]
    numbers: Sequence[Round]  # once a reduce: the counts; twice when it tunes: regions, and candidates' magnitudes
    gather: Sequence[Round]


def oktopk(p: int, w: int) -> OkTopk:
    """p−1 + 2⌈log₂p⌉ rounds; ⌈log₂p⌉ more when it tunes; and those of evening out, which depend on the data."""
    return OkTopk(direct_scatter(p, w), gather(p, w), gather(p, w))


class Moves(NamedTuple):
    """Who hands over entries to whom; this rank itself may be among both."""

    sends: list[tuple[int, int, int]]  # (to, lo, hi): the own entries from lo to hi
    sources: list[int]


def even_out(counts: Sequence[int], w: int) -> Moves:
    """For ranks with so many entries in a row, what rank w does for all to get equally many, in the same order."""
    p = len(counts)
    starts = list(accumulate(counts, initial=0))
    cuts = [j * starts[-1] // p for j in range(p + 1)]

    def overlap(holder: int, owner: int) -> tuple[int, int]:
        return max(starts[holder], cuts[owner]), min(starts[holder + 1], cuts[owner + 1])

    sends = [(to, lo - starts[w], hi - starts[w]) for to in range(p) for lo, hi in [overlap(w, to)] if lo < hi]
    sources = [source for source in range(p) for lo, hi in [overlap(source, w)] if lo < hi]
    return Moves(sends, sources)


@lru_cache(maxsize=1024)  # asked for in every reduce
def gather(p: int, w: int) -> Sequence[Round]:
    """All-gather in ⌈log₂p⌉ rounds: recursive doubling where it applies, else Bruck."""
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
