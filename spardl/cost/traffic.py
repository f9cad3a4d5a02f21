"""What every algorithm sends, found by walking its schedule.

Amounts come out in whatever numbers the setting has: exact integers for one n and k, or fractions of n and k for a
formula. Where traffic depends on the gradients, it is the least there can be, the most, or what selections at random
places lead to.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
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
        return sum(load.volume for load in self.loads)

    def bytes(self, s: "Setting") -> int:
        table = wire.table_bytes(len(self.loads)) if self.joined else 0
        return table + sum(load.bytes(s) for load in self.loads)


class Transfer(NamedTuple):
    """One round of one rank; None: it does not send, or does not receive."""

    sent: Message | None
    received: Message | None

    @property
    def volume(self) -> Amount:
        """Links work in both directions at once, so the larger one counts."""
        return max(message.volume for message in self if message is not None)


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


def _walk(steps: Iterable[Step], load: Loads, joined: bool = True) -> list[Transfer]:
    """The transfers of these steps, where ``load`` says what a block is."""

    def message(blocks: Sequence[int]) -> Message:
        return Message(tuple(map(load, blocks)), joined)

    return [
        Transfer(
            None if isinstance(step, Take) else message(step.sends),
            None if isinstance(step, Give) else message(step.receives),
        )
        for step in steps
    ]


# -- the algorithms ----------------------------------------------------------------------------------------------------


def _spardl(s: Setting, rank: int) -> list[Transfer]:
    p = s.ranks // s.teams
    team, position = schedule.Teams(s.ranks, s.teams).place(rank)
    between, final = _between_teams(s, team, position)
    return [
        *_walk(schedule.spar_reduce_scatter(p, position), lambda block: s.cut(block, p)),
        *between,
        *_walk(schedule.gather(p, position), final),
    ]


def _between_teams(s: Setting, team: int, position: int) -> tuple[list[Transfer], Loads]:
    """The Spar-All-Gather, and what the blocks are after it."""
    p = s.ranks // s.teams

    def narrowed(block: int) -> Sparse:
        """B-SAG's h: teams that have nothing in common come to the least, too, if their sum is to fit."""
        full = s.cut(block, p)
        return full if s.gradients == MOST else full._replace(entries=_ceil_part(s, full.entries, s.teams))

    if s.teams == 1:
        return [], lambda block: s.cut(block, p)
    if choose_sag(s.sag, s.teams) == "r":
        return _walk(schedule.r_sag(s.teams, team, position), lambda block: s.cut(block, p)), lambda b: s.cut(b, p)
    between = _walk(schedule.b_sag(s.teams, team), lambda team: narrowed(position))
    return between, narrowed if s.gradients == LEAST else lambda block: s.cut(block, p)


def _ceil_part(s: Setting, amount: Amount, parts: int) -> Amount:
    return amount / parts if s.symbolic else -(-amount // parts)


def _dense(phases_of: Callable[[int, int], schedule.Phases]) -> "Walker":
    def walker(s: Setting, rank: int) -> list[Transfer]:
        phases = phases_of(s.ranks, rank)
        steps = [*phases.reduce, *phases.gather]
        return _walk(steps, lambda block: Values(s.share(s.size, block, phases.blocks)), joined=False)

    return walker


def _dense_mpi(s: Setting, rank: int) -> list[Transfer]:
    """The library's own counts as the best one for long vectors, in one round, after all have said they are there."""
    if s.ranks == 1:
        return []
    ready = _walk(schedule.bruck(s.ranks, rank), lambda owner: Few(len("float32")))
    values = Message((Values(s.share(2 * (s.ranks - 1) * s.size, 0, s.ranks)),), joined=False)
    return [*ready, Transfer(values, values)]


def _topk_a(s: Setting, rank: int) -> list[Transfer]:
    return _walk(schedule.topk_a(s.ranks, rank), lambda owner: Sparse(s.k, s.size))


def _topk_dsa(s: Setting, rank: int) -> list[Transfer]:
    split = _walk(schedule.direct_scatter(s.ranks, rank), lambda region: s.cut(region, s.ranks), joined=False)
    return [*split, *_walk(schedule.gather(s.ranks, rank), lambda region: _union(s, region))]


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
    return _walk(schedule.gtopk(s.ranks, rank), lambda block: Sparse(s.k, s.size), joined=False)


def _oktopk(s: Setting, rank: int) -> list[Transfer]:
    """A reduce that does not tune. At best every rank's selection lies in its own region; at worst all that is kept
    lies in one region, and is evened out."""
    rounds = schedule.oktopk(s.ranks, rank)

    def region(block: int) -> Sparse:
        return s.cut(block, s.ranks)

    at_home = s.gradients == LEAST
    split = _walk(rounds.split, lambda block: region(block)._replace(entries=0) if at_home else region(block), False)
    uneven = rounds.split if s.gradients == MOST else []
    evening = [Transfer(Message((region(r.to),), joined=False), None) for r in uneven]
    return [*split, *_walk(rounds.numbers, lambda block: Few(16)), *evening, *_walk(rounds.gather, region)]


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
