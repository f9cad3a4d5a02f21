"""How far ranks can be apart: shortest paths over what they wait for.

Matrices go by ranks i, j and tell how many iterations i can be ahead of j. A rank waits for models of those that send
to it, so it is at most ``step`` ahead of them; and for tokens of those that it sends to, so it is at most ``max_gap``
ahead of them. None for either: it does not wait for them. ``receives[i, j]`` says whether i receives from j.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bounds = npt.NDArray[np.int64]
Receives = npt.NDArray[np.bool_]

UNREACHED = int(np.iinfo(np.int64).max // 2)  # longer than any path; the sum of two is still an int64


def bounds(receives: Receives, max_gap: int | None, step: int | None) -> Bounds:
    """Of a fixed graph, by Floyd and Warshall's algorithm; ``lengths[i, j]`` is that of the path from j to i."""
    lengths = np.full(receives.shape, UNREACHED)
    if step is not None:
        lengths[receives] = step
    if max_gap is not None:
        lengths[receives.T] = np.minimum(lengths[receives.T], max_gap)
    np.fill_diagonal(lengths, 0)
    for via in range(len(lengths)):
        np.minimum(lengths, lengths[:, via, None] + lengths[via], out=lengths)
    return lengths


def varying_bounds(parts: Sequence[Receives], max_gap: int | None, step: int | None) -> Bounds:
    """Of a graph that varies. Tokens come from all that a rank ever sends to.

    ``ahead[phase]`` are the bounds while i is in an iteration of this phase. To be there it was in the one before and
    had what it waited for: bounds follow from those of earlier iterations, and so again until nothing changes.
    """
    period, ranks = len(parts), len(parts[0])
    before, ahead = (np.full((period, ranks, ranks), UNREACHED) for _ in range(2))
    ahead[:, range(ranks), range(ranks)] = 0
    sends = np.logical_or.reduce(parts).T
    while not np.array_equal(ahead, before):
        before = ahead.copy()
        for phase, i in np.ndindex(period, ranks):
            waits = [ahead[phase, i], ahead[phase - 1, i] + 1]
            if step is not None:
                waits.extend(ahead[(phase - step) % period, parts[phase - 1][i]] + step)
            if max_gap is not None:
                waits.extend(ahead[(phase - max_gap) % period, sends[i]] + max_gap)
            ahead[phase, i] = np.min(waits, axis=0)
    most: Bounds = ahead.max(axis=0)
    return most
