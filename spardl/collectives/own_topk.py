"""What the algorithms share in which every rank selects the k largest entries of all of its own gradient."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from spardl import saved
from spardl.collectives.error_feedback import ErrorFeedback, Outcome
from spardl.effects import Collective
from spardl.kernels.api import Pair, Values
from spardl.schedule import cut_blocks
from spardl.selection import Selector, Thresholds
from spardl.sparse import SparseVector


class OwnTopK(ErrorFeedback[Thresholds]):
    """Accumulates and selects, exactly and in one pass, thanks to the last threshold; subclasses add up."""

    @abstractmethod
    def _combine(self, own: Pair, error: Values | None, acc: Values) -> Collective[SparseVector]:
        """The result, given the own entries as they go on the wire and the ``error`` of that (None if exact).

        Turns the accumulator ``acc`` into the new residual.
        """

    def _budget(self, k: int) -> Thresholds:
        self._k = k
        self._selector = Selector(self._kernels, cut_blocks(self.size, k, 1), self.dtype, self.rank)
        return self._selector.thresholds

    def _run(self, grad: Values, acc: Values, memory: Thresholds) -> Collective[Outcome[Thresholds]]:
        self._selector.thresholds = memory
        self._selector.accumulate(grad, self.residual, acc)
        ((indices, values),) = self._selector.select([0])
        rounded, error = self._codec.round(values)
        result = yield from self._combine((indices, rounded), error, acc)
        return Outcome(result, self._selector.learnt())

    def _save(self, memory: Thresholds) -> dict[str, Any]:
        return {"thresholds": memory.to_array()}

    def _load(self, state: Mapping[str, Any]) -> Thresholds:
        return Thresholds.from_array(saved.part(state, "thresholds"), 1)
