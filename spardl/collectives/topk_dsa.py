"""TopkDSA, SparCML's dynamic sparse all-reduce: split, reduce, all-gather.

Every rank's k largest entries are sent to the ranks whose regions they are in; the sums there are gathered, and a
region turns dense, values without indices, when that is shorter. Nothing that was selected is dropped, so the residual
is the accumulator without the own selection.
"""

from itertools import pairwise

from spardl.collectives.allgather import gather
from spardl.collectives.frames import joined
from spardl.collectives.own_topk import OwnTopK
from spardl.collectives.split_and_reduce import split_and_reduce
from spardl.effects import Collective
from spardl.kernels.api import Pair, Values
from spardl.schedule import cut_blocks
from spardl.sparse import SparseVector


class TopkDSA(OwnTopK):
    """One rank's part. The result has the union of all selections, and all elements of regions that turned dense."""

    def _combine(self, own: Pair, error: Values | None, acc: Values) -> Collective[SparseVector]:
        bounds, _ = cut_blocks(self.size, 0, self.ranks)
        indices, values = yield from split_and_reduce(self._kernels, self._frames, self.ranks, own, bounds)
        rounded, lost = self._codec.round(values)
        lo, hi = bounds[self.rank : self.rank + 2].tolist()
        frame = self._codec.encode_shorter(indices, rounded, lo, hi - lo)
        frames = yield from gather(range(self.ranks), self.rank, frame)
        acc[own[0]] = 0 if error is None else error
        if lost is not None:  # rounding the sum is this rank's doing
            self._kernels.scatter_add(acc, indices, lost)
        regions = [*pairwise(bounds.tolist())]
        return joined(self._frames.read_all(frames, range(self.ranks), regions), self.size)
