"""Bruck's all-gather: ⌈log₂p⌉ rounds for any number of ranks."""

from collections.abc import Sequence

from spardl import schedule
from spardl.collectives.allgather import gather_frames
from spardl.effects import Bytes, Collective


def bruck(group: Sequence[int], position: int, frame: Bytes) -> Collective[list[Bytes]]:
    return gather_frames(group, position, frame, schedule.bruck, "Bruck all-gather")
