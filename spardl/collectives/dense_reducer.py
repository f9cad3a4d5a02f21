"""Dense all-reduces as Reducers: the result has every index, and nothing is left out."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spardl import saved
from spardl.effects import Collective, Flush
from spardl.kernels.api import Values
from spardl.selection import require_finite_gradient
from spardl.sparse import SparseVector

# (ranks, rank, grad, out): out becomes the sum of all ranks' grad.
DenseSum: TypeAlias = Callable[[int, int, Values, Values], Collective[None]]


class DenseReducer:
    """One rank's part in a dense all-reduce. How many entries to keep makes no difference to it.

    A sum that overflows comes out infinite. There is a residual only between ``owe`` and the next reduce.
    """

    def __init__(
        self, dense_sum: DenseSum, size: int, k: int, *, rank: int, ranks: int, dtype: npt.DTypeLike, **_: Any
    ) -> None:
        self.size, self.rank, self.ranks = size, rank, ranks
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._sum = dense_sum
        self._owed: Values | None = None
        self._before: tuple[Values | None] | None = None

    @property
    def residual(self) -> Values:
        return np.broadcast_to(self.dtype.type(0), self.size) if self._owed is None else self._owed

    def reduce(self, grad: Values) -> Collective[SparseVector]:
        self._before = None
        own = grad if self._owed is None else grad + self._owed
        require_finite_gradient(own, self.rank)
        total = np.empty(self.size, self.dtype)  # with huge pages, and too large for the pool to keep
        yield from self._sum(self.ranks, self.rank, own, total)
        yield Flush("delivery of the result")  # a peer that is gone must be noticed before anything changes here
        self._before, self._owed = (self._owed,), None
        return SparseVector.trusted(None, total, self.size)

    def undo(self) -> None:
        if self._before is None:
            raise RuntimeError("undo: there is no reduce to take back")
        (self._owed,), self._before = self._before, None

    def owe(self, residual: Values) -> None:
        self._before = None
        self._owed = np.array(residual) if np.any(residual) else None

    def rebudget(self, k: int) -> None:
        self._before = None

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual.copy()}

    def in_common(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.owe(saved.array(saved.part(state, "residual"), "a residual", (self.size,), self.dtype))
