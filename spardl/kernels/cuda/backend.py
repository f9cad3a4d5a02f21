"""The kernel interface on device arrays: which kernels run one after another, and what the host has to know between.

The host waits for the stream only where the length of a result is decided, and then for a handful of numbers.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import (
    INDEX_LIMIT,
    Arrays,
    Corrector,
    FrameCoder,
    Indices,
    Packable,
    Packed,
    Pair,
    Selected,
    Split,
    Values,
)
from spardl.kernels.cuda import accumulate, largest, merge, scatter
from spardl.kernels.cuda.arrays import DeviceArrays
from spardl.kernels.cuda.batch import Batch, in_one
from spardl.kernels.cuda.coded import pack_all, unpack_all
from spardl.kernels.cuda.jit import WORD
from spardl.kernels.cuda.merging import merge_all, merged
from spardl.kernels.cuda.namespace import Namespace
from spardl.kernels.cuda.segments import make_table, upload


class CudaKernels:
    """Kernels on one device; every reducer has its own, because it follows its gradients' stream."""

    name = "cuda"
    frames: FrameCoder | None = None
    corrector: Corrector | None = None  # scattered writes are what a GPU is good at

    def __init__(self, namespace: Namespace, direct: bool = False) -> None:
        self._on = namespace
        self.arrays: Arrays = DeviceArrays(namespace, direct)

    # -- accumulate ----------------------------------------------------------------------------------------------------

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
        """``bounds``, ``floors`` and ``starts`` are the host's."""
        on, which = self._on, np.array(blocks, np.int64)
        tiles = [self._tiles(int(length)) for length in bounds[which + 1] - bounds[which]]
        rows, total = make_table(tiles, bounds[which], bounds[which + 1], starts[which], starts[which + 1])
        table, there_floors = upload(on, rows, floors[which])
        marks, per_tile = on.empty(total * on.threads, np.uint32), on.empty(total, np.int64)
        found = on.zeros(len(which) + 1, np.int64)
        sums = (grad, residual, out, table, there_floors, out.dtype.type(np.inf))
        on.launch(accumulate.accumulate_and_mark, total, *sums, marks, per_tile, found)
        running = on.running_sum(per_tile)
        on.launch(accumulate.take_candidates, total, out, table, marks, running, indices, values, found)
        *counts, from_end = on.to_host(found)[0].tolist()
        return counts, len(out) - from_end if from_end > 0 else -1

    # -- selection -----------------------------------------------------------------------------------------------------

    def topk_dense(self, dense: Values, k: int, base: int, index_dtype: npt.DTypeLike) -> Pair:
        batch = Batch(self._on.empty(0, index_dtype), dense, [0], [len(dense)])
        (chosen,) = largest.take(self._on, largest.mark(self._on, batch, [k]), base)
        return chosen.indices, chosen.values

    def topk_dense_many(
        self, dense: Values, bounds: Sequence[tuple[int, int]], ks: Sequence[int], index_dtype: npt.DTypeLike
    ) -> list[Pair]:
        lengths = [hi - lo for lo, hi in bounds]
        batch = Batch(self._on.empty(0, index_dtype), dense, [lo for lo, _ in bounds], lengths)
        return [chosen[:2] for chosen in largest.take(self._on, largest.mark(self._on, batch, ks))]

    def select(
        self, indices: Indices, values: Values, over_indices: Indices, over_values: Values, k: int, floor: float
    ) -> Selected:
        return self.select_many([(indices, values)], [(over_indices, over_values)], [k], [floor])[0]

    def select_many(
        self, vectors: Sequence[Pair], overs: Sequence[Pair], ks: Sequence[int], floors: Sequence[float]
    ) -> list[Selected]:
        on, like = self._on, vectors[0][1]
        batch = merge_all(on, merge.OVERRIDE, overs, vectors, like[:0], np.array(floors, like.dtype))
        magnitude = largest.magnitude_of
        return [
            Selected(c.indices, c.values, magnitude(c.key, like), c.found, magnitude(c.largest, like))
            for c in largest.take(on, largest.mark(on, batch, ks))
        ]

    def split(self, indices: Indices, values: Values, k: int) -> Split:
        on = self._on
        marked = largest.mark(on, Batch(indices, values, [0], [len(indices)]), [k])
        rest_indices, rest_values = largest.take_rest(on, marked)
        (chosen,) = largest.take(on, marked)
        rest = len(indices) - len(chosen.indices)
        return Split(chosen.indices, chosen.values, rest_indices[:rest], rest_values[:rest])

    # -- merges --------------------------------------------------------------------------------------------------------

    def add(self, indices_a: Indices, values_a: Values, indices_b: Indices, values_b: Values) -> Pair:
        return merged(self._on, merge.ADD, [(indices_a, values_a)], [(indices_b, values_b)], values_a[:0])[0]

    def add_many(self, vectors: Sequence[Pair]) -> Pair:
        indices, values = vectors[0]
        for more_indices, more_values in vectors[1:]:
            indices, values = self.add(indices, values, more_indices, more_values)
        return (indices, values) if len(vectors) > 1 else self._copies(indices, values)

    def overlay(
        self, over_indices: Indices, over_values: Values, dense: Values, indices: Indices, values: Values
    ) -> Pair:
        return self.overlay_many([(over_indices, over_values)], dense, [(indices, values)])[0]

    def overlay_many(self, overs: Sequence[Pair], dense: Values, vectors: Sequence[Pair]) -> list[Pair]:
        return merged(self._on, merge.OVERLAY, overs, vectors, dense)

    # -- dense vectors -------------------------------------------------------------------------------------------------

    def scatter_add(self, dense: Values, indices: Indices, values: Values) -> None:
        self._on.launch(scatter.add_at, self._blocks(len(indices)), dense, indices, values)

    def overwrite_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        self._on.launch(scatter.overwrite_at_wanted, self._blocks(len(indices)), dense, wanted, indices, values)

    def overwrite_where_many(self, dense: Values, wanted: Sequence[Indices], vectors: Sequence[Pair]) -> None:
        # Blocks in order are one sorted vector.
        together = (in_one(self._on, parts) for parts in (wanted, *zip(*vectors, strict=True)))
        self.overwrite_where(dense, *together)

    def add_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        self._on.launch(scatter.add_at_wanted, self._blocks(len(indices)), dense, wanted, indices, values)

    # -- packed indices ------------------------------------------------------------------------------------------------

    def pack(self, indices: Indices, base: int, bits: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        return self.pack_many([(indices, base, bits)])[0]

    def pack_many(self, blocks: Sequence[Packable]) -> list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]]:
        return pack_all(self._on, blocks)

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
        return self.unpack_many([(low, high, count, base, bits)], index_dtype, [end])[0]

    def unpack_many(
        self, blocks: Sequence[Packed], index_dtype: npt.DTypeLike, ends: Sequence[int] | None = None
    ) -> list[Indices]:
        return unpack_all(self._on, blocks, index_dtype, [INDEX_LIMIT] * len(blocks) if ends is None else ends)

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def _blocks(self, threads: int) -> int:
        return -(-threads // self._on.threads)

    def _tiles(self, count: int) -> int:
        return -(-count // (WORD * self._on.threads))

    def _copies(self, indices: Indices, values: Values) -> Pair:
        return self._on.concatenate([indices]), self._on.concatenate([values])
