"""Dense all-reduce around a ring: 2(P−1) rounds, the fewest bytes there can be.

Each block is summed in one fixed order, once, and then handed round, so all ranks get the same bits.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from spardl import schedule
from spardl.effects import Collective, Exchange


def dense_ring(ranks: int, rank: int, grad: npt.NDArray[Any], out: npt.NDArray[Any]) -> Collective[None]:
    """``out`` = the sum of all ranks' ``grad``, which is left alone."""
    bounds, _ = schedule.cut_blocks(len(grad), 0, ranks)

    def part(array: npt.NDArray[Any], block: int) -> npt.NDArray[Any]:
        return array[bounds[block] : bounds[block + 1]]

    partial = grad  # the first block goes out as it is, the others with what came in
    for number, r in enumerate(schedule.ring_reduce_scatter(ranks, rank)):
        (sent,), (received,) = r.sends, r.receives
        arrived = yield Exchange(r.to, part(partial, sent), r.source, f"ring reduce-scatter round {number}")
        np.add(arrived.view(grad.dtype), part(grad, received), out=part(out, received))
        partial = out
    if ranks == 1:
        np.copyto(out, grad)
    for number, r in enumerate(schedule.ring_gather(ranks, rank)):
        (sent,), (received,) = r.sends, r.receives
        arrived = yield Exchange(r.to, part(out, sent), r.source, f"ring gather round {number}")
        part(out, received)[:] = arrived.view(grad.dtype)
