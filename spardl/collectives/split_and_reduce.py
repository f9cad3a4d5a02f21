"""Every rank sends to each of the others its entries of that one's region, and adds up what it gets: P−1 messages."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spardl import schedule
from spardl.collectives.frames import Frames
from spardl.effects import Collective, Recv, Send
from spardl.kernels.api import Kernels, Pair
from spardl.selection import require_finite_sum


def split_and_reduce(
    kernels: Kernels, frames: Frames, ranks: int, own: Pair, bounds: npt.NDArray[np.int64]
) -> Collective[Pair]:
    """The sum of all ranks' entries in the own region, added in rank order; region j is ``bounds[j]:bounds[j+1]``."""
    indices, values = own
    # Only the inner bounds: they are less than the size, so that they fit into the type of the indices.
    inner = np.searchsorted(indices, bounds[1:-1].astype(indices.dtype)).tolist()
    cuts = [0, *inner, len(indices)]
    parts = [(indices[lo:hi], values[lo:hi]) for lo, hi in pairwise(cuts)]
    rounds = schedule.direct_scatter(ranks, frames.rank)
    for r in rounds:  # all are on their way before the first is waited for
        lo, hi = bounds[r.to : r.to + 2].tolist()
        yield Send(r.to, frames.write(parts[r.to], lo, hi), "split")
    received = {frames.rank: parts[frames.rank]}
    lo, hi = bounds[frames.rank : frames.rank + 2].tolist()
    for number, r in enumerate(rounds):
        arrived = yield Recv(r.source, f"split round {number}")
        received[r.source] = frames.read(arrived, r.source, lo, hi)
    total = kernels.add_many([received[rank] for rank in range(ranks)])
    require_finite_sum(*total, frames.rank)
    return total
