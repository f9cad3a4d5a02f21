"""Kernels for several blocks where starting one costs next to nothing: one after the other."""

from collections.abc import Sequence

import numpy.typing as npt

from spardl.kernels.api import (
    INDEX_LIMIT,
    Corrector,
    FrameCoder,
    Indices,
    Kernels,
    Packable,
    Packed,
    Pair,
    Selected,
    Values,
    Words,
)


class OneByOne:
    """The ``…_many`` of a backend that has all other kernels."""

    frames: FrameCoder | None = None
    corrector: Corrector | None = None

    def topk_dense_many(
        self: Kernels, dense: Values, bounds: Sequence[tuple[int, int]], ks: Sequence[int], index_dtype: npt.DTypeLike
    ) -> list[Pair]:
        return [self.topk_dense(dense[lo:hi], k, lo, index_dtype) for (lo, hi), k in zip(bounds, ks, strict=True)]

    def select_many(
        self: Kernels, vectors: Sequence[Pair], overs: Sequence[Pair], ks: Sequence[int], floors: Sequence[float]
    ) -> list[Selected]:
        blocks = zip(vectors, overs, ks, floors, strict=True)
        return [self.select(*vector, *over, k, floor) for vector, over, k, floor in blocks]

    def overlay_many(self: Kernels, overs: Sequence[Pair], dense: Values, vectors: Sequence[Pair]) -> list[Pair]:
        return [self.overlay(*over, dense, *vector) for over, vector in zip(overs, vectors, strict=True)]

    def overwrite_where_many(self: Kernels, dense: Values, wanted: Sequence[Indices], vectors: Sequence[Pair]) -> None:
        for indices, vector in zip(wanted, vectors, strict=True):
            self.overwrite_where(dense, indices, *vector)

    def pack_many(self: Kernels, blocks: Sequence[Packable]) -> list[tuple[Words, Words]]:
        return [self.pack(*block) for block in blocks]

    def unpack_many(
        self: Kernels, blocks: Sequence[Packed], index_dtype: npt.DTypeLike, ends: Sequence[int] | None = None
    ) -> list[Indices]:
        limits = [INDEX_LIMIT] * len(blocks) if ends is None else ends
        return [self.unpack(*block, index_dtype, end) for block, end in zip(blocks, limits, strict=True)]
