"""What every algorithm sends, found by walking its schedule.

Amounts come out in whatever numbers the setting has: exact integers for one n and k, or fractions of n and k for a
formula. Where traffic depends on the gradients, it is the least there can be, the most, or what selections at random
places lead to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from spardl import schedule, wire
from spardl.collectives.spardl import choose_sag
from spardl.schedule import Give, Step, Take

LEAST, MOST, RANDOM = "least", "most", "random"
Amount: TypeAlias = Any  # int or Fraction
_ITEMSIZE = 4  # float32


# -- what a message carries --------------------------------------------------------------------------------------------


class Sparse(NamedTuple):
    """Entries, each an index and a value, of a block of so many elements; framed."""

    entries: Amount
    length: Amount

    @property
    def volume(self) -> Amount:
        """In the paper's unit: an index counts as much as a value."""
        return 2 * self.entries

    def bytes(self, s: "Setting") -> int:
        return wire.frame_bytes(self.entries, self.length, s.coded, s.wire)


class Values(NamedTuple):
    """A block of values without indices, framed or as they are."""

    length: Amount
    framed: bool = False

    @property
    def volume(self) -> Amount:
        return self.length

    def bytes(self, s: "Setting") -> int:
        return wire.dense_frame_bytes(self.length, s.coded) if self.framed else self.length * _ITEMSIZE


class Few(NamedTuple):
    """A few bytes, too few to count as volume."""

    length: int
    volume: int = 0

    def bytes(self, s: "Setting") -> int:
        return self.length


Load: TypeAlias = Sparse | Values | Few


class Message(NamedTuple):
    """``joined``: with a table of the loads' lengths before them."""

    loads: tuple[Load, ...]
    joined: bool = True

    @property
    def volume(self) -> Amount:
        return self._total(lambda load: load.volume)

    def bytes(self, s: "Setting") -> int:
        table = wire.table_bytes(len(self.loads)) if self.joined else 0
        return table + int(self._total(lambda load: load.bytes(s)))

    def _total(self, amount: Callable[[Load], Amount]) -> Amount:
        """Thousands of blocks are of one or two kinds."""
        return sum(count * amount(load) for load, count in Counter(self.loads).items())


@dataclass(frozen=True, slots=True)
class Transfer:
    """One round of one rank; None: it does not send, or does not receive. Without peers it is the library's doing."""

    sent: Message | None
    received: Message | None
    to: int | None = None  # a rank
    source: int | None = None
    adds: bool = False  # what arrives is added up; else it is the result, or a few numbers

    @property
    def messages(self) -> list[Message]:
        return [message for message in (self.sent, self.received) if message is not None]

    @property
    def volume(self) -> Amount:
        """Links work in both directions at once, so the larger one counts."""
        return max(message.volume for message in self.messages)


# -- the settings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """P ranks in d teams reduce n gradients to k. ``symbolic``: blocks are equal parts, whatever divides what."""

    ranks: int
    size: Amount
    k: Amount
    teams: int = 1
    sag: str = "auto"
    gradients: str = RANDOM
    coded: int = 4  # bytes of a value in a frame
    wire: str = "auto"
    symbolic: bool = False

    def share(self, total: Amount, block: int, blocks: int) -> Amount:
        """The block's part, as ``schedule.cut_blocks`` has it."""
        if self.symbolic:
            return Fraction(total) / blocks
        return (block + 1) * total // blocks - block * total // blocks

    def cut(self, block: int, blocks: int) -> Sparse:
        return Sparse(self.share(self.k, block, blocks), self.share(self.size, block, blocks))


Loads: TypeAlias = Callable[[int], Load]


@lru_cache(maxsize=64)  # all ranks send the same blocks
def _cuts(s: Setting, blocks: int) -> tuple[Sparse, ...]:
    return tuple(s.cut(block, blocks) for block in range(blocks))


@lru_cache(maxsize=64)
def _dense_cuts(s: Setting, blocks: int) -> tuple[Values, ...]:
    return tuple(Values(s.share(s.size, block, blocks)) for block in range(blocks))


def _walk(
    steps: Iterable[Step], load: Loads, *, joined: bool = True, adds: bool = False, ranks: Sequence[int] | None = None
) -> list[Transfer]:
    """The transfers of these steps, where ``load`` says what a block is. Peers are positions among ``ranks``."""

    def message(blocks: Sequence[int]) -> Message:
        return Message(tuple(map(load, blocks)), joined)

    def peer(position: int) -> int:
        return position if ranks is None else ranks[position]

    def transfer(step: Step) -> Transfer:
        if isinstance(step, Take):
            return Transfer(None, message(step.receives), None, peer(step.source), adds)
        if isinstance(step, Give):
            return Transfer(message(step.sends), None, peer(step.to), None)
        return Transfer(message(step.sends), message(step.receives), peer(step.to), peer(step.source), adds)

    return [transfer(step) for step in steps]


# -- the algorithms ----------------------------------------------------------------------------------------------------


def _spardl(s: Setting, rank: int) -> list[Transfer]:
    layout = schedule.Teams(s.ranks, s.teams)
    p, position, mates = layout.per_team, layout.place(rank).position, layout.team_of(rank)
    full = _cuts(s, p).__getitem__
    between, final = _between_teams(s, rank, layout)
    return [
        *_walk(schedule.spar_reduce_scatter(p, position), full, adds=True, ranks=mates),
        *between,
        *_walk(schedule.gather(p, position), final, ranks=mates),
    ]


@lru_cache(maxsize=64)
def _narrowed(s: Setting, blocks: int) -> tuple[Sparse, ...]:
    """B-SAG's h: teams that have nothing in common come to the least, too, if their sum is to fit."""
    if s.gradients == MOST:
        return _cuts(s, blocks)
    return tuple(full._replace(entries=_ceil_part(s, full.entries, s.teams)) for full in _cuts(s, blocks))


def _between_teams(s: Setting, rank: int, layout: schedule.Teams) -> tuple[list[Transfer], Loads]:
    """The Spar-All-Gather, and what the blocks are after it."""
    (team, position), peers = layout.place(rank), layout.peers_of(rank)
    full, narrowed = _cuts(s, layout.per_team), _narrowed(s, layout.per_team)
    if s.teams == 1:
        return [], full.__getitem__
    if choose_sag(s.sag, s.teams) == "r":
        rounds = schedule.r_sag(s.teams, team, position)
        return _walk(rounds, full.__getitem__, adds=True, ranks=peers), full.__getitem__
    between = _walk(schedule.b_sag(s.teams, team), lambda team: narrowed[position], adds=True, ranks=peers)
    return between, (narrowed if s.gradients == LEAST else full).__getitem__


def _ceil_part(s: Setting, amount: Amount, parts: int) -> Amount:
    return amount / parts if s.symbolic else -(-amount // parts)


def _dense(phases_of: Callable[[int, int], schedule.Phases]) -> "Walker":
    def walker(s: Setting, rank: int) -> list[Transfer]:
        phases = phases_of(s.ranks, rank)
        load = _dense_cuts(s, phases.blocks).__getitem__
        return [
            *_walk(phases.reduce, load, joined=False, adds=True),
            *_walk(phases.gather, load, joined=False),
        ]

    return walker


def _dense_mpi(s: Setting, rank: int) -> list[Transfer]:
    """The library's own counts as the best one for long vectors, in one round, after all have said they are there."""
    if s.ranks == 1:
        return []
    ready = _walk(schedule.bruck(s.ranks, rank), lambda owner: Few(len("float32")))
    values = Message((Values(s.share(2 * (s.ranks - 1) * s.size, 0, s.ranks)),), joined=False)
    return [*ready, Transfer(values, values)]


def _topk_a(s: Setting, rank: int) -> list[Transfer]:
    selected = Sparse(s.k, s.size)
    return _walk(schedule.topk_a(s.ranks, rank), lambda owner: selected, adds=True)


def _topk_dsa(s: Setting, rank: int) -> list[Transfer]:
    regions, unions = _cuts(s, s.ranks).__getitem__, _unions(s).__getitem__
    split = _walk(schedule.direct_scatter(s.ranks, rank), regions, joined=False, adds=True)
    return [*split, *_walk(schedule.gather(s.ranks, rank), unions)]


@lru_cache(maxsize=64)
def _unions(s: Setting) -> tuple[Load, ...]:
    return tuple(_union(s, region) for region in range(s.ranks))


def _union(s: Setting, region: int) -> Load:
    """What all ranks' selections in a region add up to: entries, or all values when that is shorter."""
    own = s.cut(region, s.ranks)
    dense = Values(own.length, framed=True)
    if s.symbolic:
        return own if s.gradients == LEAST else dense
    if s.gradients == RANDOM:
        density = own.entries / max(1, own.length)
        count = round(own.length * (1 - (1 - min(1.0, density)) ** s.ranks))
    else:
        count = min(own.length, own.entries * (1 if s.gradients == LEAST else s.ranks))
    sparse = Sparse(count, own.length)
    return sparse if sparse.bytes(s) <= dense.bytes(s) else dense


def _gtopk(s: Setting, rank: int) -> list[Transfer]:
    """Up the tree, where sums are made, and down."""
    steps = schedule.gtopk(s.ranks, rank)
    parent, children = schedule.binomial_tree(s.ranks, rank)
    up = len(children) + (parent is not None)
    selected = Sparse(s.k, s.size)
    return [
        *_walk(steps[:up], lambda block: selected, joined=False, adds=True),
        *_walk(steps[up:], lambda block: selected, joined=False),
    ]


def _oktopk(s: Setting, rank: int) -> list[Transfer]:
    """A reduce that does not tune. At best every rank's selection lies in its own region; at worst all that is kept
    lies in rank 0's, and is evened out."""
    rounds, regions = schedule.oktopk(s.ranks, rank), _cuts(s, s.ranks)
    sent = [region._replace(entries=0) for region in regions] if s.gradients == LEAST else regions
    return [
        *_walk(rounds.split, sent.__getitem__, joined=False, adds=True),
        *_walk(rounds.numbers, lambda block: Few(16)),
        *(_evening_out(s, rank) if s.gradients == MOST else []),
        *_walk(rounds.gather, regions.__getitem__),
    ]


def _evening_out(s: Setting, rank: int) -> list[Transfer]:
    regions = _cuts(s, s.ranks)
    steps: list[Step] = [Take(0, (rank,))] if rank else [Give(to, (to,)) for to in range(1, s.ranks)]
    return _walk(steps, regions.__getitem__, joined=False)


Walker: TypeAlias = Callable[[Setting, int], list[Transfer]]

WALKERS: dict[str, Walker] = {
    "spardl": _spardl,
    "dense_ring": _dense(schedule.dense_ring),
    "dense_rabenseifner": _dense(schedule.dense_rabenseifner),
    "dense_recursive_doubling": _dense(schedule.dense_recursive_doubling),
    "dense_mpi": _dense_mpi,
    "topk_a": _topk_a,
    "topk_dsa": _topk_dsa,
    "gtopk": _gtopk,
    "oktopk": _oktopk,
}


def transfers(algorithm: str, setting: Setting, rank: int = 0) -> list[Transfer]:
    """The rounds of one rank. Rank 0 is as busy as any, in every algorithm here."""
    return WALKERS[algorithm](setting, rank)
