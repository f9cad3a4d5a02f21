"""Dense all-reduce by recursive doubling: log₂P rounds of everything, for gradients that are short."""

from typing import Any

import numpy.typing as npt

from spardl import schedule
from spardl.collectives.dense_walk import DenseWalk
from spardl.effects import Collective


def dense_recursive_doubling(ranks: int, rank: int, grad: npt.NDArray[Any], out: npt.NDArray[Any]) -> Collective[None]:
    """``out`` = the sum of all ranks' ``grad``, which is left alone."""
    return DenseWalk(schedule.dense_recursive_doubling(ranks, rank), rank, grad, out, "recursive-doubling").run()
