"""Dense all-reduce for any number of ranks and elements: by the algorithm that suits them."""

from typing import Any

import numpy.typing as npt

from spardl.collectives.dense_rabenseifner import dense_rabenseifner
from spardl.collectives.dense_recursive_doubling import dense_recursive_doubling
from spardl.collectives.dense_ring import dense_ring
from spardl.effects import Collective

_SHORT = 1 << 14  # bytes, of a message: what takes about as long to send as to begin sending on fast Ethernet


def dense_sum(ranks: int, rank: int, values: npt.NDArray[Any], out: npt.NDArray[Any]) -> Collective[None]:
    """``out`` = the sum of all ranks' ``values``, which are left alone; the same bits on all.

    Short ones in the fewest rounds. Of long ones a ring sends the fewest bytes, in rounds whose number is no matter as
    long as their messages are not short; else Rabenseifner's, in few rounds, sends as few if ranks are a power of two.
    """
    if values.nbytes <= _SHORT:
        return dense_recursive_doubling(ranks, rank, values, out)
    if ranks & (ranks - 1) == 0 or values.nbytes < ranks * _SHORT:
        return dense_rabenseifner(ranks, rank, values, out)
    return dense_ring(ranks, rank, values, out)
