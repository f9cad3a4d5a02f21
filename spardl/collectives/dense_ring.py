"""Dense all-reduce around a ring: 2(P−1) rounds, the fewest bytes there can be."""

from typing import Any

import numpy.typing as npt

from spardl import schedule
from spardl.collectives.dense_walk import DenseWalk
from spardl.effects import Collective


def dense_ring(ranks: int, rank: int, grad: npt.NDArray[Any], out: npt.NDArray[Any]) -> Collective[None]:
    """``out`` = the sum of all ranks' ``grad``, which is left alone."""
    return DenseWalk(schedule.dense_ring(ranks, rank), rank, grad, out, "ring").run()
