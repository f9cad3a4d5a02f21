"""Exact top-k of every block with one pass over the gradient.

The pass that adds gradient and residual also sets aside the candidates: entries at or above a *floor*, a little less
than the block's threshold in the last reduce. What other ranks send is kept beside the accumulator (an *overlay*: the
sums so far at the received indices), never added into it. The k largest of a block are then among candidates and
overlay, provided that k of those stand at or above the floor, because whatever else there is stands below it. If not,
the block is searched again in full: slower, just as exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl import saved
from spardl.errors import NonFiniteGradient
from spardl.kernels import memory
from spardl.kernels.api import Arrays, Indices, Kernels, Pair, Selected, Values
from spardl.schedule import Blocks
from spardl.sparse import index_dtype

# How far the floor lies below the expected threshold: the further, the more one fell short of what was expected;
# a little less after one that did not, but never closer than chance moves the k-th largest of fresh numbers.
_SLACK_START, _SLACK_MAX, _SLACK_DECAY, _SLACK_PER_SHORTFALL = 0.05, 0.5, 0.9, 1.5
_GROWTH = 0.5, 2.0  # the least and the most that a threshold's change is taken for
_GOES_ON = 0.8  # so much of the last change is expected again; less is, as residuals pile up ever more slowly


def _least_slack(budgets: Sequence[int]) -> tuple[float, ...]:
    return tuple(min(0.01 + 0.5 / math.sqrt(max(budget, 1)), _SLACK_MAX) for budget in budgets)


def _within(values: npt.NDArray[Any], least: float, most: float) -> bool:
    return bool(np.all((values >= least) & (values <= most)))


# Room for candidates per entry wanted; a floor that lets more through is of no use.
_ROOM = 4


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is remembered from one reduce to the next, per block. It changes the speed of a reduce, never its result.

    Plain numbers: there are as many as blocks, and for so few NumPy takes longer than it saves.
    """

    last: Sequence[float]  # magnitude of the smallest entry selected; 0 = unknown
    growth: Sequence[float]  # of that magnitude from reduce to reduce; the later, the more it counts
    slack: Sequence[float]

    @classmethod
    def unknown(cls, budgets: Sequence[int]) -> "Thresholds":
        blocks = len(budgets)
        return cls([0.0] * blocks, [1.0] * blocks, [max(_SLACK_START, least) for least in _least_slack(budgets)])

    @classmethod
    def from_array(cls, array: Any, blocks: int) -> "Thresholds":
        """Raises ValueError if ``to_array`` of so many blocks cannot have returned that."""
        last, growth, slack = saved.array(array, "thresholds", (3, blocks), np.float64)
        if np.any(last < 0) or not _within(growth, *_GROWTH) or not _within(slack, 0, _SLACK_MAX):
            raise saved.unfit("thresholds", "with sound growth and slack", array.tolist())
        return cls(last.tolist(), growth.tolist(), slack.tolist())

    def to_array(self) -> npt.NDArray[np.float64]:
        """For checkpoints: ``from_array`` is the way back."""
        return np.array([self.last, self.growth, self.slack], np.float64)

    def expected(self) -> list[float]:
        """What the thresholds should be next time."""
        blocks = zip(self.last, self.growth, strict=True)
        return [last * (1 + _GOES_ON * (1 - 1 / growth)) for last, growth in blocks]

    def floors(self) -> list[float]:
        """A little less than that."""
        return [expected * (1 - slack) for expected, slack in zip(self.expected(), self.slack, strict=True)]

    def after(self, found: Sequence[float], least_slack: Sequence[float]) -> "Thresholds":
        """With the thresholds ``found`` this time (0 where none was)."""
        last, growth, slack = list(self.last), list(self.growth), list(self.slack)
        for j, (new, expected) in enumerate(zip(found, self.expected(), strict=True)):
            if new > 0 and last[j] > 0:
                growth[j] = (growth[j] + min(max(new / last[j], _GROWTH[0]), _GROWTH[1])) / 2
                short = (
                    1 - new / expected if expected > 0 else 0.0
                )  # it is 0 where the smallest of all numbers was last
                wanted = least_slack[j] + _SLACK_PER_SHORTFALL * max(0.0, short)
                slack[j] = min(max(wanted, _SLACK_DECAY * slack[j]), _SLACK_MAX)
            if new > 0:
                last[j] = new
        return Thresholds(last, growth, slack)


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
        self._rooms = list(pairwise(self._starts.tolist()))
        self._arrays = kernels.arrays
        self._indices = kernels.arrays.empty(int(self._starts[-1]), self.index_dtype)
        self._values = kernels.arrays.empty(int(self._starts[-1]), self._dtype)
        self._least_slack = _least_slack(self._budgets)
        self.nothing: Pair = (kernels.arrays.empty(0, self.index_dtype), kernels.arrays.empty(0, self._dtype))
        self.thresholds = Thresholds.unknown(self._budgets)

    def accumulate(self, grad: Values, residual: Values, acc: Values) -> None:
        """``acc = grad + residual``, candidates set aside; raises NonFiniteGradient and forgets nothing."""
        self.start(acc)
        self.accumulate_blocks(grad, residual, range(len(self._budgets)))

    def start(self, acc: Values) -> None:
        """The first of many steps that do the same: blocks may be accumulated later, each before it is used."""
        # Never zero: zeros are not candidates. Where nothing is known nothing is collected.
        floors = [
            max(floor, self._tiny) if last > 0 and budget > 0 else math.inf
            for floor, last, budget in zip(self.thresholds.floors(), self.thresholds.last, self._budgets, strict=True)
        ]
        self._floors = np.array(floors, self._dtype)
        self._floor_list = self._floors.tolist()
        self._acc = acc
        self._counts = [0] * len(self._budgets)
        self.overlays = [self.nothing] * len(self._budgets)
        self._found = [0.0] * len(self._budgets)

    def accumulate_blocks(
        self, grad: Values, residual: Values, blocks: Sequence[int], corrections: Pair | None = None
    ) -> None:
        """``corrections`` of these blocks are written into ``residual`` first, by kernels that have a ``corrector``."""
        layout = self._bounds, self._floors, self._starts
        arguments = blocks, grad, residual, self._acc, *layout, self._indices, self._values
        if corrections is None:
            counts, bad = self._kernels.accumulate(*arguments)
        else:
            assert self._kernels.corrector is not None
            counts, bad = self._kernels.corrector.accumulate_corrected(*arguments, *corrections)
        for j, count in zip(blocks, counts, strict=True):
            self._counts[j] = count
        if bad >= 0:
            (got,), (owed,) = self._arrays.to_host(grad[bad : bad + 1], residual[bad : bad + 1])
            raise non_finite(got, owed, bad, self._rank)

    def receive(self, blocks: Sequence[int], vectors: Sequence[Pair]) -> None:
        """Adds a sparse vector to each of the blocks, after all that was received into it before."""
        overs = [self.overlays[j] for j in blocks]
        for j, overlay in zip(blocks, self._kernels.overlay_many(overs, self._acc, vectors), strict=True):
            self.overlays[j] = overlay

    def select(self, blocks: Sequence[int], most: int | None = None) -> list[Pair]:
        """Of each block as it stands now the budgeted number of largest entries, or ``most`` if that is less."""
        known, unknown = {}, {}  # how many are wanted of blocks whose candidates are all there, and of others
        for j in blocks:
            k = self._budgets[j] if most is None else min(most, self._budgets[j])
            begin, end = self._rooms[j]
            if k > 0 and self._floor_list[j] < math.inf and self._counts[j] <= end - begin:
                known[j] = k
            elif k > 0:
                unknown[j] = k
        chosen = self._select_from_candidates(known) if known else {}
        if len(chosen) < len(known):
            unknown |= {j: k for j, k in known.items() if j not in chosen}
        if unknown:
            chosen |= self._select_in_full(unknown)
        return [self._note(j, chosen[j]) if j in chosen else self.nothing for j in blocks]

    def _select_from_candidates(self, wanted: dict[int, int]) -> dict[int, Selected]:
        """Of the blocks wanted those that have enough candidates."""
        candidates, overs, floors = [], [], []
        for j in wanted:
            part = slice(self._rooms[j][0], self._rooms[j][0] + self._counts[j])
            candidates.append((self._indices[part], self._values[part]))
            overs.append(self.overlays[j])
            floors.append(self._floor_list[j])
        selected = self._kernels.select_many(candidates, overs, list(wanted.values()), floors)
        chosen = {}
        for (j, k), found in zip(wanted.items(), selected, strict=True):
            complete = self._floor_list[j] <= self._tiny  # every non-zero entry is a candidate
            if found.found >= k or complete:
                chosen[j] = found
        return chosen

    def _select_in_full(self, wanted: dict[int, int]) -> dict[int, Selected]:
        bounds = [(int(self._bounds[j]), int(self._bounds[j + 1])) for j in wanted]
        overs = [self.overlays[j] for j in wanted]
        # An overlay entry may push its own index down, so as many more are taken as there are overlay entries.
        enough = [k + len(indices) for k, (indices, _) in zip(wanted.values(), overs, strict=True)]
        dense = self._kernels.topk_dense_many(self._acc, bounds, enough, self.index_dtype)
        floors = [self._tiny] * len(wanted)
        return dict(zip(wanted, self._kernels.select_many(dense, overs, list(wanted.values()), floors), strict=True))

    def _note(self, j: int, chosen: Selected) -> Pair:
        # With fewer non-zero entries than the budget there is no threshold; next time every non-zero is a candidate.
        self._found[j] = max(float(chosen.threshold), self._tiny)
        if not math.isfinite(chosen.largest):
            indices, values = self._arrays.to_host(chosen.indices, chosen.values)
            raise overflow(indices, values, self._rank)
        return chosen.indices, chosen.values

    def learnt(self) -> Thresholds:
        """This reduce's thresholds: assign them to ``thresholds`` for the next to start from them."""
        return self.thresholds.after(self._found, self._least_slack)


def require_finite_gradient(grad: Values, rank: int) -> None:
    """Raises NonFiniteGradient naming the first element that is NaN or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(np.dot(grad, grad))  # one pass and no temporary; may also overflow
    if suspicious:
        finite = np.isfinite(grad)
        if not finite.all():
            index = int(np.argmin(finite))
            message = f"non-finite gradient on rank {rank} at index {index}: gradient {grad[index]}"
            raise NonFiniteGradient(message, rank=rank, index=index)


def non_finite(grad: Any, residual: Any, index: int, rank: int) -> NonFiniteGradient:
    """Gradient plus residual, two numbers, is not finite at ``index``."""
    message = f"non-finite gradient on rank {rank} at index {index}: gradient {grad}, residual {residual}"
    return NonFiniteGradient(message, rank=rank, index=index)


def require_finite_sum(indices: Indices, values: Values, rank: int, arrays: Arrays = memory.HOST) -> None:
    """Raises NonFiniteGradient if a sum has overflowed."""
    if not arrays.all_finite(values):
        indices, values = arrays.to_host(indices, values)
        raise overflow(indices, values, rank)


def overflow(indices: Indices, values: Values, rank: int) -> NonFiniteGradient:
    """A sum is not finite. Infinity has the largest magnitude there is, so it is always among the selected."""
    index = int(indices[np.argmin(np.isfinite(values))])
    message = f"the sum of the ranks' gradients overflows at index {index} (on rank {rank})"
    return NonFiniteGradient(message, rank=rank, index=index)
