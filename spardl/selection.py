"""Exact top-k of every block with one pass over the gradient.

The pass that adds gradient and residual also sets aside the candidates: entries at or above a *floor*, a little less than
the block's threshold in the last reduce. What other ranks send is kept beside the accumulator (an *overlay*: the sums so
far at the received indices), never added into it. The k largest of a block are then among candidates and overlay,
provided that k of those stand at or above the floor, because whatever else there is stands below it. If not, the block is
searched again in full: slower, just as exact.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spardl.errors import NonFiniteGradient
from spardl.kernels.api import Indices, Kernels, Pair, Values
from spardl.schedule import Blocks
from spardl.sparse import index_dtype

# How far below the last threshold the floor lies. A miss doubles it, a hit lets it shrink.
_SLACK_MIN, _SLACK_START, _SLACK_MAX = 0.02, 0.05, 0.5
_SLACK_DECAY = 0.9
# Room for candidates per entry wanted; a floor that lets more through is as useless as one too high.
_ROOM = 4


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is remembered from one reduce to the next. It changes the speed of a reduce, never its result."""

    last: npt.NDArray[np.float64]  # per block: magnitude of the smallest entry selected; 0 = unknown
    slack: npt.NDArray[np.float64]

    @classmethod
    def unknown(cls, blocks: int) -> "Thresholds":
        return cls(np.zeros(blocks), np.full(blocks, _SLACK_START))


class Selector:
    """Accumulates one gradient and selects from its blocks; reused for every reduce, with the buffers it needs."""

    def __init__(self, kernels: Kernels, blocks: Blocks, dtype: npt.DTypeLike, rank: int) -> None:
        self._kernels = kernels
        self._rank = rank
        self._bounds, self._budgets = blocks
        self._dtype = np.dtype(dtype)
        self._tiny = float(np.finfo(self._dtype).smallest_subnormal)
        self.index_dtype = index_dtype(int(self._bounds[-1]))
        lengths = np.diff(self._bounds)
        room = np.minimum(lengths, _ROOM * np.array(self._budgets, np.int64) + 1024)
        room[np.array(self._budgets) == 0] = 0
        self._starts = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
        self._indices = np.empty(self._starts[-1], self.index_dtype)
        self._values = np.empty(self._starts[-1], self._dtype)
        self.nothing: Pair = (np.empty(0, self.index_dtype), np.empty(0, self._dtype))
        self.thresholds = Thresholds.unknown(len(self._budgets))

    def accumulate(self, grad: Values, residual: Values, acc: Values) -> None:
        """``acc = grad + residual``, candidates set aside; raises NonFiniteGradient and forgets nothing."""
        known = (self.thresholds.last > 0) & (np.array(self._budgets) > 0)
        floors = self.thresholds.last * (1 - self.thresholds.slack)
        # Never zero: zeros are not candidates. Where nothing is known nothing is collected.
        self._floors = np.where(known, np.maximum(floors, self._tiny), np.inf).astype(self._dtype)
        self._acc = acc
        self._counts, bad = self._kernels.accumulate(
            grad, residual, acc, self._bounds, self._floors, self._starts, self._indices, self._values
        )
        if bad >= 0:
            raise self._non_finite(bad, f"gradient {grad[bad]} + residual {residual[bad]}")
        self.overlays = [self.nothing] * len(self._budgets)
        self._next_last = self.thresholds.last.copy()
        self._next_slack = self.thresholds.slack.copy()

    def receive(self, j: int, indices: Indices, values: Values) -> None:
        """Adds a sparse vector to block j, after all that was received into it before."""
        self.overlays[j] = self._kernels.overlay(*self.overlays[j], self._acc, indices, values)

    def select(self, j: int) -> Pair:
        """The budgeted number of largest entries of block j as it stands now."""
        k = self._budgets[j]
        if k == 0:
            return self.nothing
        floor = float(self._floors[j])
        start, count = self._starts[j], self._counts[j]
        complete = floor <= self._tiny  # every non-zero entry is a candidate
        if count <= self._starts[j + 1] - start and (count > 0 or complete or len(self.overlays[j][0])):
            candidates = slice(start, start + count)
            chosen = self._kernels.select(
                self._indices[candidates], self._values[candidates], *self.overlays[j], k, floor
            )
            if chosen.found >= k or complete:
                self._remember(j, chosen.threshold, max(_SLACK_MIN, self._next_slack[j] * _SLACK_DECAY))
                return self._finite(chosen.indices, chosen.values)
        return self._select_in_full(j, k)

    def _select_in_full(self, j: int, k: int) -> Pair:
        overlay = self.overlays[j]
        lo, hi = int(self._bounds[j]), int(self._bounds[j + 1])
        # An overlay entry may push its own index down, so as many more are taken as there are overlay entries.
        dense = self._kernels.topk_dense(self._acc[lo:hi], k + len(overlay[0]), lo, self.index_dtype)
        chosen = self._kernels.select(*dense, *overlay, k, self._tiny)
        missed = self.thresholds.last[j] > 0
        self._remember(j, chosen.threshold, min(_SLACK_MAX, self._next_slack[j] * 2) if missed else _SLACK_START)
        return self._finite(chosen.indices, chosen.values)

    def commit(self) -> None:
        """Makes this reduce's thresholds the ones that the next starts from."""
        self.thresholds = Thresholds(self._next_last, self._next_slack)

    def _remember(self, j: int, threshold: float, slack: float) -> None:
        # With fewer non-zero entries than the budget the threshold is 0; next time every non-zero is a candidate.
        self._next_last[j] = max(threshold, self._tiny)
        self._next_slack[j] = slack

    def _finite(self, indices: Indices, values: Values) -> Pair:
        """An overflow has the largest magnitude there is, so it is always among the selected."""
        finite = np.isfinite(values)
        if not finite.all():
            raise self._non_finite(int(indices[np.argmin(finite)]), "the sum of several ranks' gradients overflows")
        return indices, values

    def _non_finite(self, index: int, what: str) -> NonFiniteGradient:
        message = f"non-finite gradient on rank {self._rank} at index {index}: {what}"
        return NonFiniteGradient(message, rank=self._rank, index=index)
