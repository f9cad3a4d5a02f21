"""The oracle: every kernel in the most obvious NumPy, to be read and trusted, not to be fast."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import INDEX_LIMIT, Arrays, Indices, Pair, Selected, Split, Values
from spardl.kernels.checks import require_entries, require_increasing, require_last, require_words
from spardl.kernels.memory import HOST
from spardl.kernels.one_by_one import OneByOne


def _largest(values: Values, k: int) -> npt.NDArray[np.intp]:
    """Positions of the k largest magnitudes, lower position first on ties, no zeros; in increasing order."""
    magnitude = np.abs(values)
    best_first = np.argsort(-magnitude, kind="stable")
    nonzero = int(np.count_nonzero(magnitude))
    return np.sort(best_first[: min(k, nonzero)])


class NumpyKernels(OneByOne):
    name = "numpy"
    arrays: Arrays = HOST

    def accumulate(
        self,
        blocks: Sequence[int],
        grad: Values,
        residual: Values,
        out: Values,
        bounds: npt.NDArray[np.int64],
        floors: Values,
        starts: npt.NDArray[np.int64],
        indices: Indices,
        values: Values,
    ) -> tuple[list[int], int]:
        counts, bads = [], []
        for j in blocks:
            whole = slice(bounds[j], bounds[j + 1])
            with np.errstate(over="ignore", invalid="ignore"):
                block = np.add(grad[whole], residual[whole], out=out[whole])
            hits = np.flatnonzero(np.abs(block) >= floors[j])
            counts.append(len(hits))
            stored = hits[: starts[j + 1] - starts[j]]
            indices[starts[j] : starts[j] + len(stored)] = stored + bounds[j]
            values[starts[j] : starts[j] + len(stored)] = block[stored]
            bads += (np.flatnonzero(~np.isfinite(block))[:1] + bounds[j]).tolist()
        return counts, min(bads, default=-1)

    def topk_dense(self, dense: Values, k: int, base: int, index_dtype: npt.DTypeLike) -> Pair:
        chosen = _largest(dense, k)
        return (chosen + base).astype(index_dtype), dense[chosen]

    def select(
        self, indices: Indices, values: Values, over_indices: Indices, over_values: Values, k: int, floor: float
    ) -> Selected:
        kept = ~np.isin(indices, over_indices)
        indices = np.concatenate([indices[kept], over_indices])
        values = np.concatenate([values[kept], over_values])
        order = np.argsort(indices)
        order = order[np.abs(values[order]) >= floor]
        indices, values = indices[order], values[order]
        chosen = _largest(values, k)
        threshold = float(np.abs(values[chosen]).min()) if 0 < k == len(chosen) else 0.0
        largest = float(np.abs(values[chosen]).max(initial=0))
        return Selected(indices[chosen], values[chosen], threshold, len(indices), largest)

    def split(self, indices: Indices, values: Values, k: int) -> Split:
        rest = np.ones(len(indices), bool)
        chosen = _largest(values, k)
        rest[chosen] = False
        return Split(indices[chosen], values[chosen], indices[rest], values[rest])

    def add(self, indices_a: Indices, values_a: Values, indices_b: Indices, values_b: Values) -> Pair:
        union = np.union1d(indices_a, indices_b)
        total = np.full(len(union), -0.0, values_a.dtype)  # the neutral element: even -0.0 passes unchanged
        total[np.searchsorted(union, indices_a)] = values_a
        total[np.searchsorted(union, indices_b)] += values_b
        return union, total

    def add_many(self, vectors: Sequence[Pair]) -> Pair:
        indices, values = vectors[0]
        for more_indices, more_values in vectors[1:]:
            indices, values = self.add(indices, values, more_indices, more_values)
        return indices.copy(), values.copy()

    def overlay(
        self, over_indices: Indices, over_values: Values, dense: Values, indices: Indices, values: Values
    ) -> Pair:
        union = np.union1d(over_indices, indices)
        total = dense[union]
        total[np.searchsorted(union, over_indices)] = over_values
        total[np.searchsorted(union, indices)] += values
        return union, total

    def scatter_add(self, dense: Values, indices: Indices, values: Values) -> None:
        dense[indices] += values

    def overwrite_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        hit = np.isin(indices, wanted)
        dense[indices[hit]] = values[hit]

    def add_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        hit = np.isin(indices, wanted)
        dense[indices[hit]] += values[hit]

    def pack(self, indices: Indices, base: int, bits: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        gaps = np.concatenate([[base - 1], indices]).astype(np.int64)
        gaps = gaps[1:] - gaps[:-1] - 1
        require_increasing(not np.any(gaps < 0), base)
        low_bits = (gaps[:, None] >> np.arange(bits)) & 1
        ones = np.cumsum((gaps >> bits) + 1) - 1
        high_bits = np.zeros(ones[-1] + 1 if len(ones) else 0, np.uint8)
        high_bits[ones] = 1
        return _words(low_bits.ravel()), _words(high_bits)

    def unpack(
        self,
        low: npt.NDArray[np.uint64],
        high: npt.NDArray[np.uint64],
        count: int,
        base: int,
        bits: int,
        index_dtype: npt.DTypeLike,
        end: int = INDEX_LIMIT,
    ) -> Indices:
        ones = np.flatnonzero(np.unpackbits(high.view(np.uint8), bitorder="little"))[:count]
        require_entries(len(ones), count)
        require_words(len(low), count, bits)
        quotients = np.diff(ones, prepend=-1) - 1
        low_bits = np.unpackbits(low.view(np.uint8), count=count * bits, bitorder="little").reshape(count, bits)
        remainders = low_bits.astype(np.int64) @ (np.int64(1) << np.arange(bits, dtype=np.int64))
        gaps = (quotients << bits) + remainders
        indices = np.cumsum(gaps + 1) - 1 + base  # sums that are far too large wrap to negative ones
        if count:
            require_last(int(indices[-1]), base, end, index_dtype)
        return indices.astype(index_dtype)


def _words(bits: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """A 0/1 array as 64-bit words, first bit lowest, padded with zeros."""
    padded = np.zeros(-(-len(bits) // 64) * 64, np.uint8)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view(np.uint64)


KERNELS = NumpyKernels()
