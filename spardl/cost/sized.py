"""All-reduces of which only the sizes of their messages are known, for virtual time with thousands of ranks.

Peers, sizes and rounds are those of ``spardl.cost.traffic``, the order in which messages leave that of the collectives,
and what is computed comes from ``spardl.cost.work``, spread over the rounds: what is read, added and written costs as
much per byte as it does on rank 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spardl import schedule
from spardl.cost.traffic import Message, Setting, Transfer, Values, transfers
from spardl.cost.work import Work as Amounts
from spardl.cost.work import beside_first_round, kernel_seconds, work
from spardl.effects import Allreduce, Collective, Flush, Recv, Send, Size, Work

Unit: TypeAlias = Callable[[Message], int]  # how large a message is

# When kernels run: those of neither kind while something is read.
_BEFORE, _AFTER, _ROUND = ("call", "accumulate", "check"), ("settle", "correct"), ("round",)
_WRITING, _ADDING = ("pack",), ("select", "overlay", "add", "add_dense")
# All of a split's messages leave before the first is waited for; so many are enough to keep a port busy, and of those
# of thousands of ranks more would not fit into memory.
_AHEAD = 256


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of computing: before the first message, beside it and after the last; per round and byte in between."""

    before: float = 0.0
    beside: float = 0.0
    after: float = 0.0
    waited: float = 0.0
    written: float = 0.0
    read: float = 0.0
    added: float = 0.0


def sized(
    algorithm: str, setting: Setting, gamma: Mapping[str, float] | None = None, unit: Unit | None = None
) -> list[Collective[None]]:
    """One reduce of every rank. ``gamma``: of a profile; without, kernels take no time. ``unit``: else bytes."""
    size = unit or (lambda message: message.bytes(setting))
    spread = Spread() if gamma is None else spread_work(algorithm, setting, gamma, size)
    return [_reduce(algorithm, setting, rank, size, spread) for rank in range(setting.ranks)]


def _reduce(algorithm: str, s: Setting, rank: int, size: Unit, spread: Spread) -> Collective[None]:
    rounds = transfers(algorithm, s, rank)
    sizes = [0 if t.sent is None else size(t.sent) for t in rounds]
    ahead = _leave_before(algorithm, s, rank)
    yield Work(spread.before)
    left = 0
    for number, t in enumerate(rounds):
        leave = ahead[number] if number < len(ahead) else number + 1
        for leaving in range(left, leave):
            yield from _send(rounds[leaving], sizes[leaving], spread)
        left = leave
        if number == 0:
            yield Work(spread.beside)
        yield from _receive(t, s, number, spread)
    yield Work(spread.after)
    yield Flush("delivery of the result")


def _send(t: Transfer, nbytes: int, spread: Spread) -> Collective[None]:
    if t.to is not None:
        if spread.written:
            yield Work(nbytes * spread.written)
        yield Send(t.to, Size(nbytes))


def _receive(t: Transfer, s: Setting, number: int, spread: Spread) -> Collective[None]:
    if t.source is not None:
        arrived: Size = yield Recv(t.source, f"round {number}")
        per_byte = spread.read + (spread.added if t.adds else 0.0)
        if seconds := spread.waited + arrived.nbytes * per_byte:
            yield Work(seconds)
    elif t.to is None:
        vector = Size(Values(s.size).bytes(s))
        yield Allreduce(vector, vector, "the library's Allreduce")
        yield Work(spread.waited)


def _leave_before(algorithm: str, s: Setting, rank: int) -> Sequence[int]:
    """For the first rounds, how many messages leave before each one's is waited for; later it is always one more."""
    if algorithm == "spardl":
        layout = schedule.Teams(s.ranks, s.teams)
        return schedule.leave_before(layout.per_team, layout.place(rank).position)
    if algorithm in ("topk_dsa", "oktopk"):
        return [min(number + _AHEAD, s.ranks - 1) for number in range(s.ranks - 1)]
    return ()


# -- what is computed when ---------------------------------------------------------------------------------------------


def spread_work(algorithm: str, s: Setting, gamma: Mapping[str, float], size: Unit) -> Spread:
    """Of rank 0's work in one reduce."""
    rounds = transfers(algorithm, s)
    amounts = work(algorithm, s, rounds)
    beside = kernel_seconds(beside_first_round(algorithm, s), gamma)
    parts = {kind: kernel_seconds(_of(amounts, kind), gamma) for kind in (_BEFORE, _AFTER, _ROUND, _WRITING, _ADDING)}
    reading = kernel_seconds(amounts, gamma) - sum(parts.values())
    sent, received, added = (
        sum(size(message) for message in messages if message is not None)
        for messages in (
            [t.sent for t in rounds],
            [t.received for t in rounds],
            [t.received for t in rounds if t.adds],
        )
    )
    per_byte = [(parts[_WRITING], sent), (reading, received), (parts[_ADDING], added)]
    alone = sum(seconds for seconds, nbytes in per_byte if not nbytes)  # where there are no messages of the kind
    written, read, adding = (seconds / nbytes if nbytes else 0.0 for seconds, nbytes in per_byte)
    return Spread(parts[_BEFORE] - beside + alone, beside, parts[_AFTER], gamma["round"], written, read, adding)


def _of(amounts: Amounts, kernels: Sequence[str]) -> Amounts:
    return Amounts({kernel: amounts[kernel] for kernel in kernels})
