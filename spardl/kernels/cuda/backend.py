"""The kernel interface on device arrays: which kernels run one after another, and what the host has to know between.

The host waits for the stream only where the length of a result is decided, and then for a handful of numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import Arrays, Indices, Pair, Selected, Split, Values
from spardl.kernels.cuda import coding, cut, merge, partition, scatter
from spardl.kernels.cuda.accumulate import accumulate_and_mark, take_candidates
from spardl.kernels.cuda.arrays import DeviceArrays
from spardl.kernels.cuda.jit import WORD
from spardl.kernels.cuda.namespace import DeviceArray, Namespace


class CudaKernels:
    """Kernels on one device; every reducer has its own, because it follows its gradients' stream."""

    name = "cuda"

    def __init__(self, namespace: Namespace, direct: bool = False) -> None:
        self._on = namespace
        self.arrays: Arrays = DeviceArrays(namespace, direct)

    # -- accumulate ----------------------------------------------------------------------------------------------------

    def accumulate(
        self,
        grad: Values,
        residual: Values,
        out: Values,
        bounds: npt.NDArray[np.int64],
        floors: Values,
        starts: npt.NDArray[np.int64],
        indices: Indices,
        values: Values,
    ) -> tuple[npt.NDArray[np.int64], int]:
        """``bounds``, ``floors`` and ``starts`` are the host's."""
        on, infinity = self._on, out.dtype.type(np.inf)
        from_end = on.zeros(1, np.int64)
        counts = []
        for j, floor in enumerate(floors):
            lo, hi = bounds[j : j + 2].tolist()
            tiles = self._tiles(hi - lo)
            marks, per_tile = on.empty(tiles * on.threads, np.uint32), on.empty(tiles, np.int64)
            sums = (grad, residual, out, lo, hi, floor, infinity)
            on.launch(accumulate_and_mark, tiles, *sums, marks, per_tile, from_end)
            running = on.running_sum(per_tile)
            room = starts[j : j + 2].tolist()
            on.launch(take_candidates, tiles, out, lo, marks, running, *room, indices, values)
            counts.append(running[max(tiles - 1, 0) :])
        (from_end,), *found = on.to_host(from_end, *counts)
        found_counts = np.array([int(count[0]) if len(count) else 0 for count in found], np.int64)
        return found_counts, len(out) - int(from_end) if from_end > 0 else -1

    # -- selection -----------------------------------------------------------------------------------------------------

    def topk_dense(self, dense: Values, k: int, base: int, index_dtype: npt.DTypeLike) -> Pair:
        none = self._on.empty(0, index_dtype)
        return self._largest(none, base, dense, k)[:2]

    def select(
        self, indices: Indices, values: Values, over_indices: Indices, over_values: Values, k: int, floor: float
    ) -> Selected:
        least = values.dtype.type(floor)
        indices, values = self._merge(merge.OVERRIDE, over_indices, over_values, indices, values, values[:0], least)
        top_indices, top_values, key, largest = self._largest(indices, 0, values, k)
        return Selected(top_indices, top_values, _magnitude(key, values), len(indices), _magnitude(largest, values))

    def split(self, indices: Indices, values: Values, k: int) -> Split:
        on, marked = self._on, self._cut(values, k)
        if marked is None:
            nothing = on.empty(0, indices.dtype), on.empty(0, values.dtype)
            return Split(*nothing, on.concatenate([indices]), on.concatenate([values]))
        rest_indices, rest_values = on.empty(len(indices), indices.dtype), on.empty(len(values), values.dtype)
        on.launch(partition.take_rest, marked.tiles, indices, values, *marked.arrays, rest_indices, rest_values)
        top_indices, top_values, _, _ = self._take(marked, indices, 0, values)
        rest = len(indices) - len(top_indices)
        return Split(top_indices, top_values, rest_indices[:rest], rest_values[:rest])

    def _largest(self, indices: Indices, base: int, values: Values, k: int) -> tuple[Indices, Values, int, int]:
        """The k largest, the key of the k-th (0 if there are fewer) and that of the largest."""
        marked = self._cut(values, k)
        if marked is None:
            return self._on.empty(0, indices.dtype), self._on.empty(0, values.dtype), 0, 0
        return self._take(marked, indices, base, values)

    def _cut(self, values: Values, k: int) -> "_Marked | None":
        """Finds where the k largest begin and marks them; None if there is nothing to find."""
        on, rank = self._on, min(k, len(values))
        if rank == 0:
            return None
        bits, key_bits = values.view(f"i{values.itemsize}"), 8 * values.itemsize - 1
        magnitude = (1 << key_bits) - 1
        state = on.zeros(cut.STATES, np.int64)
        passes = -(-key_bits // on.digit_bits)
        buckets = 1 << on.digit_bits
        tables = on.zeros(passes * buckets, np.int64)
        tiles = self._tiles(len(values))
        for number in range(passes):
            table = tables[number * buckets : (number + 1) * buckets]
            open_bits = key_bits - number * on.digit_bits
            left_open = max(open_bits - on.digit_bits, 0)
            on.launch(cut.count_digits, min(tiles, _MOST_BLOCKS), bits, magnitude, open_bits, left_open, state, table)
            on.launch(cut.find_digit, 1, open_bits - left_open, rank if number == 0 else 0, table, state)
        above, equal = on.empty(tiles * on.threads, np.uint32), on.empty(tiles * on.threads, np.uint32)
        counts = on.empty(2 * tiles, np.int64)
        on.launch(partition.mark_cut, tiles, bits, magnitude, state, above, equal, counts)
        return _Marked(k, rank, tiles, bits, magnitude, (above, equal, on.running_sum(counts), state))

    def _take(self, marked: "_Marked", indices: Indices, base: int, values: Values) -> tuple[Indices, Values, int, int]:
        on = self._on
        top_indices, top_values = on.empty(marked.rank, indices.dtype), on.empty(marked.rank, values.dtype)
        keys = (marked.bits, marked.magnitude)
        on.launch(
            *(partition.take_largest, marked.tiles, indices, base, values, *keys, *marked.arrays),
            *(top_indices, top_values),
        )
        key, ties, largest = on.to_host(marked.arrays[-1])[0].tolist()
        count = marked.rank if key > 0 else marked.rank - ties  # zeros are not taken
        return top_indices[:count], top_values[:count], key if count == marked.k else 0, largest

    # -- merges --------------------------------------------------------------------------------------------------------

    def add(self, indices_a: Indices, values_a: Values, indices_b: Indices, values_b: Values) -> Pair:
        nowhere = values_a.dtype.type(0)
        return self._merge(merge.ADD, indices_a, values_a, indices_b, values_b, values_a[:0], nowhere)

    def add_many(self, vectors: Sequence[Pair]) -> Pair:
        indices, values = vectors[0]
        for more_indices, more_values in vectors[1:]:
            indices, values = self.add(indices, values, more_indices, more_values)
        return (indices, values) if len(vectors) > 1 else self._copies(indices, values)

    def overlay(
        self, over_indices: Indices, over_values: Values, dense: Values, indices: Indices, values: Values
    ) -> Pair:
        nowhere = values.dtype.type(0)
        return self._merge(merge.OVERLAY, over_indices, over_values, indices, values, dense, nowhere)

    def _merge(
        self,
        kind: int,
        indices_a: Indices,
        values_a: Values,
        indices_b: Indices,
        values_b: Values,
        dense: Values,
        floor: Any,
    ) -> Pair:
        on, most = self._on, len(indices_a) + len(indices_b)
        indices, values = on.empty(most, indices_a.dtype), on.empty(most, values_a.dtype)
        if most == 0:
            return indices, values
        blocks = -(-most // (merge.STRETCH * on.threads))
        counts = on.empty(blocks, np.int64)
        vectors = (kind, indices_a, values_a, indices_b, values_b, dense, floor)
        on.launch(merge.merge_count, blocks, *vectors, counts, indices, values)
        sums = on.running_sum(counts)
        on.launch(merge.merge_write, blocks, *vectors, sums, indices, values)
        count = self._last(sums)
        return indices[:count], values[:count]

    # -- dense vectors -------------------------------------------------------------------------------------------------

    def scatter_add(self, dense: Values, indices: Indices, values: Values) -> None:
        self._on.launch(scatter.add_at, self._blocks(len(indices)), dense, indices, values)

    def overwrite_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        self._on.launch(scatter.overwrite_at_wanted, self._blocks(len(indices)), dense, wanted, indices, values)

    def add_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        self._on.launch(scatter.add_at_wanted, self._blocks(len(indices)), dense, wanted, indices, values)

    # -- packed indices ------------------------------------------------------------------------------------------------

    def pack(self, indices: Indices, base: int, bits: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        on, count = self._on, len(indices)
        low = on.empty(_words(count * bits), np.uint64)
        if count == 0:
            return low, on.empty(0, np.uint64)
        on.launch(coding.pack_low, self._blocks(len(low)), indices, base, bits, low)
        lengths = on.empty(count, np.int64)
        on.launch(coding.unary_lengths, self._blocks(count), indices, base, bits, lengths)
        ends = on.running_sum(lengths)
        high = on.empty(_words(self._last(ends)), np.uint64)
        on.launch(coding.pack_high, self._blocks(len(high)), ends, high)
        return low, high

    def unpack(
        self,
        low: npt.NDArray[np.uint64],
        high: npt.NDArray[np.uint64],
        count: int,
        base: int,
        bits: int,
        index_dtype: npt.DTypeLike,
    ) -> Indices:
        on = self._on
        if len(low) < _words(count * bits):
            raise ValueError(f"packed indices: {len(low)} words cannot hold {count} times {bits} bits")
        indices: Indices = on.empty(count, index_dtype)
        if count == 0:
            return indices
        words = high.view(np.uint32)
        ones = on.empty(len(words), np.int64)
        on.launch(coding.count_ones, self._blocks(len(words)), words, ones)
        sums = on.running_sum(ones)
        found = self._last(sums) if len(words) else 0
        if found < count:
            raise ValueError(f"packed indices end after {found} of {count} entries")
        places = on.empty(count, np.int64)
        on.launch(coding.place_ones, self._blocks(len(words)), words, sums, places)
        rests = on.zeros(count, np.int64)
        if bits > 0:
            on.launch(coding.read_low, self._blocks(count), low, bits, rests)
        on.launch(coding.join_gaps, self._blocks(count), places, on.running_sum(rests), base, bits, indices)
        return indices

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def _blocks(self, threads: int) -> int:
        return -(-threads // self._on.threads)

    def _tiles(self, count: int) -> int:
        return -(-count // (WORD * self._on.threads))

    def _last(self, array: DeviceArray) -> int:
        return int(self._on.to_host(array[len(array) - 1 :])[0][0])

    def _copies(self, indices: Indices, values: Values) -> Pair:
        return self._on.concatenate([indices]), self._on.concatenate([values])


# Blocks that count digits: each adds its counts to the table once, so not too many; enough to fill any device.
_MOST_BLOCKS = 1024


class _Marked:
    """The k largest of some values, marked: what the kernels of ``partition`` need to take them."""

    def __init__(
        self, k: int, rank: int, tiles: int, bits: DeviceArray, magnitude: int, arrays: tuple[DeviceArray, ...]
    ) -> None:
        self.k, self.rank, self.tiles, self.bits, self.magnitude = k, rank, tiles, bits, magnitude
        self.arrays = arrays  # marks above and equal, running sums, state


def _magnitude(key: int, like: Values) -> float:
    """The number that a key stands for."""
    return float(np.array([key], f"i{like.itemsize}").view(like.dtype)[0])


def _words(bits: int) -> int:
    return -(-bits // 64)
