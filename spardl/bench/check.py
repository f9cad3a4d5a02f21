"""Whether results are right, in the very run that is timed."""

from typing import NamedTuple

import numpy as np

from spardl.bench import ranks
from spardl.bench.runner import Gradient, Runner
from spardl.runtime.library import MPI

TOLERANCE = 1e-5  # of what is handed in minus what comes out, over the largest magnitude that comes out
_CHUNK = 1 << 20


class Verdict(NamedTuple):
    """The same on all ranks. ``wrong`` counts elements, ranks whose bits differ from rank 0's, and a result that has
    more entries than it may have.
    """

    law: float  # the largest error of any element
    same_bits: bool
    wrong: int


def check(comm: MPI.Intracomm, runner: Runner, grad: Gradient) -> Verdict:
    """One more reduce: what goes in must come out or stay behind. All results so far must be the same everywhere."""
    old = runner.reducer.residual.copy()
    result = runner.reduce(grad)
    scale = float(np.abs(result.values).max(initial=0)) or 1.0
    worst, wrong = 0.0, 0
    for lo in range(0, len(grad), _CHUNK):
        part = slice(lo, lo + _CHUNK)
        # Exactly, then as float32: twice as much would have to be summed over ranks, maybe through a slow network.
        missing = (grad[part].astype(np.float64) + old[part] - runner.reducer.residual[part]).astype(np.float32)
        ranks.add_up(comm, missing)
        first, last = np.searchsorted(result.indices, [lo, lo + _CHUNK])
        missing[result.indices[first:last] - lo] -= result.values[first:last]
        error = np.abs(missing) / scale
        worst = float(np.maximum(worst, error.max()))  # NaN stays
        wrong += int(np.count_nonzero(~(error < TOLERANCE)))  # so that NaN counts
    digests = ranks.gather(comm, np.frombuffer(runner.digest(), np.uint8))
    odd = int((digests != digests[0]).any(axis=1).sum())
    allowed = runner.contender.most_entries(comm.size, len(grad), runner.reducer.k)
    law, elements, too_many = ranks.largest(comm, worst, wrong, result.nnz > allowed)
    return Verdict(law, odd == 0, int(elements + odd + too_many))
