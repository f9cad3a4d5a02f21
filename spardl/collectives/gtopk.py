"""gTopk: up a tree with a top-k after every addition, and down again: 2⌈log₂P⌉ rounds of k entries for any P.

Rank 0 ends up with the result and broadcasts it. Residuals are kept by the rule that SparDL uses: outside the result a
rank keeps its accumulator; on it, what it did not send, and the sums that it dropped after an addition.
"""

from spardl import schedule
from spardl.collectives.broadcast import broadcast
from spardl.collectives.own_topk import OwnTopK
from spardl.effects import Bytes, Collective, Recv, Send
from spardl.kernels.api import Pair, Values
from spardl.residual import Ledger
from spardl.selection import require_finite_sum
from spardl.sparse import SparseVector


class GTopk(OwnTopK):
    """One rank's part. The result has at most k entries."""

    def _combine(self, own: Pair, error: Values | None, acc: Values) -> Collective[SparseVector]:
        ledger = Ledger(self._kernels, 0, "global")
        ledger.sent(0, own[0], error)
        held = yield from self._reduce_from_children(own, ledger)
        frame = self._frame(held, ledger)
        parent, _ = schedule.binomial_tree(self.ranks, self.rank)
        if parent is not None:
            yield Send(parent, frame, "gTopk reduction")
        frame = yield from broadcast(self.ranks, self.rank, frame)
        indices, values = self._frames.read(frame, 0, 0, self.size)
        ledger.settle(acc, [indices], [self._selector.nothing])
        return SparseVector.trusted(indices, values.copy(), self.size)  # not a view of a message

    def _reduce_from_children(self, held: Pair, ledger: Ledger) -> Collective[Pair]:
        """The largest entries of the sum over this rank's branch of the tree."""
        _, children = schedule.binomial_tree(self.ranks, self.rank)
        for number, child in enumerate(reversed(children)):  # the smallest branch is ready first
            arrived = yield Recv(child, f"gTopk reduction round {number}")
            total = self._kernels.add(*held, *self._frames.read(arrived, child, 0, self.size))
            kept = self._kernels.split(*total, self._k)
            require_finite_sum(kept.indices, kept.values, self.rank)
            ledger.share(kept.rest_indices, kept.rest_values)
            held = kept.indices, kept.values
        return held

    def _frame(self, held: Pair, ledger: Ledger) -> Bytes:
        indices, values = held
        rounded, error = self._codec.round(values)
        ledger.share(indices, error)
        return self._frames.write((indices, rounded), 0, self.size)
