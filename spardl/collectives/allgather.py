"""All-gathers of byte strings of any length: everybody ends with what everybody contributed, by position.

No sizes are exchanged beforehand; a round's message carries them.
"""

from collections.abc import Callable, Sequence

from spardl import schedule, wire
from spardl.effects import Bytes, Collective, Exchange

Rounds = Callable[[int, int], Sequence[schedule.Round]]


def gather_frames(
    group: Sequence[int], position: int, frame: Bytes, rounds: Rounds, name: str
) -> Collective[list[Bytes]]:
    """``frame`` from every position of ``group``, along the rounds of a schedule of this module's callers."""
    held = {position: frame}
    for number, r in enumerate(rounds(len(group), position)):
        message = wire.join([held[block] for block in r.sends])
        arrived = yield Exchange(group[r.to], message, group[r.source], f"{name} round {number}")
        held.update(zip(r.receives, wire.split(arrived, len(r.receives)), strict=True))
    return [held[block] for block in range(len(group))]


def gather(group: Sequence[int], position: int, frame: Bytes) -> Collective[list[Bytes]]:
    """In the fewest rounds: recursive doubling where it applies, else Bruck."""
    return gather_frames(group, position, frame, schedule.gather, "all-gather")
