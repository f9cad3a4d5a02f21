"""TopkA: an all-gather of everyone's k largest entries, which everyone adds up.

⌈log₂P⌉ rounds, but every rank receives (P−1)k entries. The result is the union of all selections; what a rank selected
is in it, so the residual is the accumulator without that.
"""

from spardl.collectives.allgather import gather
from spardl.collectives.own_topk import OwnTopK
from spardl.effects import Collective
from spardl.kernels.api import Pair, Values
from spardl.selection import require_finite_sum
from spardl.sparse import SparseVector


class TopkA(OwnTopK):
    """One rank's part. The result has between k and kP entries, some of them perhaps zero."""

    def _combine(self, own: Pair, error: Values | None, acc: Values) -> Collective[SparseVector]:
        frame = self._frames.write(own, 0, self.size)
        frames = yield from gather(range(self.ranks), self.rank, frame)
        parts = [
            own if rank == self.rank else self._frames.read(frame, rank, 0, self.size)
            for rank, frame in enumerate(frames)
        ]
        indices, values = self._kernels.add_many(parts)  # in rank order, so that all get the same bits
        require_finite_sum(indices, values, self.rank)
        acc[own[0]] = 0 if error is None else error
        return SparseVector.trusted(indices, values, self.size)
