"""Recursive-doubling all-gather: log₂p rounds between pairs, for powers of two."""

from collections.abc import Sequence

from spardl import schedule
from spardl.collectives.allgather import gather_frames
from spardl.effects import Bytes, Collective


def recursive_doubling(group: Sequence[int], position: int, frame: Bytes) -> Collective[list[Bytes]]:
    return gather_frames(group, position, frame, schedule.recursive_doubling, "recursive-doubling all-gather")
