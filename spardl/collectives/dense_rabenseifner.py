"""Dense all-reduce by Rabenseifner: recursive halving and doubling, 2log₂P rounds, as few bytes as the ring."""

from typing import Any

import numpy.typing as npt

from spardl import schedule
from spardl.collectives.dense_walk import DenseWalk
from spardl.effects import Collective


def dense_rabenseifner(ranks: int, rank: int, grad: npt.NDArray[Any], out: npt.NDArray[Any]) -> Collective[None]:
    """``out`` = the sum of all ranks' ``grad``, which is left alone."""
    return DenseWalk(schedule.dense_rabenseifner(ranks, rank), rank, grad, out, "rabenseifner").run()
