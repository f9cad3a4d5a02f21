"""Ok-Topk (Li and Hoefler, 2022): thresholds that are reused, regions that are balanced.

Every rank sends its entries at or above its own threshold to the ranks whose regions they are in; those keep the sums
at or above a threshold that all share; the rest is an all-gather, after evening out who holds how many. Thresholds and
regions are found anew every ``retune_every`` reduces; a threshold also at once, when it lets through half as much again
as k entries, or less than two thirds of k. A rank's residual is its accumulator, but for what it sent that is in the
result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl import saved, schedule
from spardl.collectives.allgather import gather
from spardl.collectives.error_feedback import ErrorFeedback, Outcome
from spardl.collectives.frames import joined, numbers_in
from spardl.collectives.split_and_reduce import split_and_reduce
from spardl.effects import Bytes, Collective, Recv, Send
from spardl.errors import WireError
from spardl.kernels.api import Pair, Values
from spardl.residual import Ledger
from spardl.selection import non_finite
from spardl.sparse import SparseVector, index_dtype

_LEEWAY = 1.5  # how many times more or fewer entries than k may pass a threshold
_LOPSIDED = 4  # times the average: who holds more hands some over before the all-gather


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is reused from reduce to reduce. Magnitudes; infinity: unknown."""

    age: int  # reduces since the last regular tuning; 0: it is due
    own: float  # what this rank sends
    shared: float  # what the result keeps; the same on all ranks
    bounds: npt.NDArray[np.int64]  # of the regions; the same on all ranks


class Kept(NamedTuple):
    """What the result keeps of the own region, how many entries every rank has of it, and the threshold."""

    pair: Pair
    counts: list[int]
    threshold: float


class OkTopk(ErrorFeedback[Tuning]):
    """One rank's part. The result has k entries after tuning, else between 2k/3 and 3k/2, if there are so many."""

    def __init__(self, size: int, k: int, *, retune_every: int = 32, **common: Any) -> None:
        self._retune_every = retune_every
        super().__init__(size, k, **common)

    def _budget(self, k: int) -> Tuning:
        self._k = k
        self._tiny = float(np.finfo(self.dtype).smallest_subnormal)
        room = min(self.size, int(_LEEWAY * k))
        self._room = np.array([0, room], np.int64)
        self._indices = np.empty(room, index_dtype(self.size))
        self._values = np.empty(room, self.dtype)
        self._nothing: Pair = (self._indices[:0], self._values[:0])
        return Tuning(0, np.inf, np.inf, schedule.cut_blocks(self.size, 0, self.ranks).bounds)

    def _run(self, grad: Values, acc: Values, memory: Tuning) -> Collective[Outcome[Tuning]]:
        due = memory.age == 0
        (indices, values), own_threshold = self._select_own(grad, acc, np.inf if due else memory.own)
        rounded, error = self._codec.round(values)
        ledger = Ledger(self._kernels, 0, "global")
        ledger.sent(0, indices, error)
        bounds = (yield from self._balance_regions(indices)) if due else memory.bounds
        total = yield from split_and_reduce(self._kernels, self._frames, self.ranks, (indices, rounded), bounds)
        kept = yield from (self._keep_largest(total) if due else self._keep_above(total, memory.shared))
        result = yield from self._gather(kept, ledger)
        ledger.settle(acc, [result.indices], [self._nothing])
        age = (memory.age + 1) % self._retune_every
        return Outcome(result, Tuning(age, own_threshold, kept.threshold, bounds))

    def _save(self, memory: Tuning) -> dict[str, Any]:
        return {"tuning": (memory.age, memory.own, memory.shared), "bounds": memory.bounds.copy()}

    def in_common(self) -> dict[str, Any]:
        tuning = self._memory
        return {"age": tuning.age, "shared threshold": repr(tuning.shared), "bounds": tuning.bounds.tolist()}

    def _load(self, state: Mapping[str, Any]) -> Tuning:
        age, own, shared = saved.sequence(saved.part(state, "tuning"), "tuning", 3)
        saved.integer(age, "the age of a tuning", 0, self._retune_every - 1)
        for threshold in (own, shared):
            if not isinstance(threshold, float) or not threshold > 0:  # infinity: unknown
                raise saved.unfit("a threshold", "> 0", threshold)
        bounds = saved.array(saved.part(state, "bounds"), "bounds", (self.ranks + 1,), np.int64).copy()
        if bounds[0] != 0 or bounds[-1] != self.size or np.any(np.diff(bounds) < 0):
            raise saved.unfit("bounds", f"that rise from 0 to {self.size}", bounds.tolist())
        return Tuning(age, own, shared, bounds)

    # -- what to send --------------------------------------------------------------------------------------------------

    def _select_own(self, grad: Values, acc: Values, threshold: float) -> tuple[Pair, float]:
        """Accumulates; the entries at or above the threshold, and the threshold for next time."""
        everything = np.array([0, self.size], np.int64)
        floors = np.array([threshold], self.dtype)
        (count,), bad = self._kernels.accumulate(
            [0], grad, self.residual, acc, everything, floors, self._room, self._indices, self._values
        )
        if bad >= 0:
            raise non_finite(grad[bad], self.residual[bad], bad, self.rank)
        enough = _LEEWAY * count >= self._k or threshold <= self._tiny
        if enough and count <= len(self._indices):
            return (self._indices[:count], self._values[:count]), threshold
        largest = self._kernels.topk_dense(acc, self._k, 0, self._indices.dtype)
        return largest, self._threshold(largest[1])

    def _threshold(self, largest: Values) -> float:
        """The least magnitude of the k largest; with fewer than k of them, every non-zero passes."""
        if self._k == 0:
            return np.inf
        return float(np.abs(largest).min()) if len(largest) == self._k else self._tiny

    def _balance_regions(self, indices: npt.NDArray[Any]) -> Collective[npt.NDArray[np.int64]]:
        """Bounds between which ranks have about equally many entries: everyone's wishes, averaged."""
        bounds = schedule.cut_blocks(self.size, 0, self.ranks).bounds.copy()
        if len(indices):
            bounds[1:-1] = indices[np.arange(1, self.ranks) * len(indices) // self.ranks]
        wishes = yield from gather(range(self.ranks), self.rank, bounds[1:-1].view(np.uint8))
        bounds[1:-1] = sum(numbers_in(wish, np.int64, self.ranks - 1) for wish in wishes) // self.ranks
        if np.any(np.diff(bounds) < 0):
            raise WireError(f"expected regions of {self.size} elements that follow one another, got other wishes")
        return bounds

    # -- what to keep --------------------------------------------------------------------------------------------------

    def _keep_above(self, total: Pair, threshold: float) -> Collective[Kept]:
        """The sums at or above the shared threshold, or the k largest if those are far too many or too few."""
        indices, values, *_ = self._kernels.select(*total, *self._nothing, len(total[0]), threshold)
        mine = np.array([len(indices), np.count_nonzero(total[1])], np.int64).view(np.uint8)
        frames = yield from gather(range(self.ranks), self.rank, mine)
        counts, available = np.stack([numbers_in(frame, np.int64, 2) for frame in frames]).T
        if np.any(counts < 0) or np.any(counts > available):
            raise WireError("expected numbers of entries from all ranks, got some that cannot be")
        found = int(counts.sum())
        if found > _LEEWAY * self._k:  # the k largest are among those
            return (yield from self._keep_largest((indices, values)))
        if _LEEWAY * found < self._k and found < available.sum():
            return (yield from self._keep_largest(total))
        return Kept((indices, values), counts.tolist(), threshold)

    def _keep_largest(self, total: Pair) -> Collective[Kept]:
        """The k largest sums of all regions, exactly: everyone gets to see the magnitudes that may be among them."""
        candidates = np.abs(self._kernels.split(*total, self._k).values)
        frames = yield from gather(range(self.ranks), self.rank, candidates.view(np.uint8))
        magnitudes = [numbers_in(frame, self.dtype) for frame in frames]
        chosen, largest = self._kernels.topk_dense(np.concatenate(magnitudes), self._k, 0, np.int64)
        ends = np.cumsum([0, *map(len, magnitudes)])
        counts = np.diff(np.searchsorted(chosen, ends)).tolist()
        mine = self._kernels.split(*total, counts[self.rank])
        return Kept((mine.indices, mine.values), counts, self._threshold(largest))

    # -- who gets it ---------------------------------------------------------------------------------------------------

    def _gather(self, kept: Kept, ledger: Ledger) -> Collective[SparseVector]:
        indices, values = kept.pair
        rounded, error = self._codec.round(values)
        ledger.share(indices, error)
        pair = (indices, rounded)
        if max(kept.counts) * self.ranks > _LOPSIDED * sum(kept.counts):
            pair = yield from self._even_out(pair, kept.counts)
        frames = yield from gather(range(self.ranks), self.rank, self._frame(pair))
        return joined(self._frames.read_pieces(frames, range(self.ranks)), self.size)

    def _even_out(self, pair: Pair, counts: list[int]) -> Collective[Pair]:
        """Equally many entries on every rank. Regions follow one another, so pieces of them do as well."""
        indices, values = pair
        moves = schedule.even_out(counts, self.rank)
        own, arrived = {}, {}
        for to, lo, hi in moves.sends:
            piece = (indices[lo:hi], values[lo:hi])
            if to == self.rank:
                own[to] = piece
            else:
                yield Send(to, self._frame(piece), "evening out")
        for source in moves.sources:
            if source != self.rank:
                arrived[source] = yield Recv(source, "evening out")
        read = self._frames.read_pieces([*arrived.values()], [*arrived])
        pieces = own | dict(zip(arrived, read, strict=True))
        vector = joined([pieces[source] for source in moves.sources] or [self._nothing], self.size)
        if np.any(vector.indices[1:] <= vector.indices[:-1]):
            raise WireError("pieces of the result arrived that do not follow one another")
        return vector.indices, vector.values

    def _frame(self, pair: Pair) -> Bytes:
        indices = pair[0]
        lo, hi = (int(indices[0]), int(indices[-1]) + 1) if len(indices) else (0, 0)
        return self._frames.write(pair, lo, hi)
