"""The compiled kernels of csrc/ behind the common interface."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spardl.kernels import _native
from spardl.kernels.api import INDEX_LIMIT, Arrays, Corrector, FrameCoder, Indices, Pair, Selected, Split, Values
from spardl.kernels.memory import HOST
from spardl.kernels.one_by_one import OneByOne


class NativeKernels(OneByOne):
    name = "native"
    arrays: Arrays = HOST
    frames: FrameCoder | None = _native
    corrector: Corrector | None = _native

    accumulate = staticmethod(_native.accumulate)
    add = staticmethod(_native.add)
    overlay = staticmethod(_native.overlay)
    scatter_add = staticmethod(_native.scatter_add)
    overwrite_where = staticmethod(_native.overwrite_where)
    add_where = staticmethod(_native.add_where)
    pack = staticmethod(_native.pack)

    def topk_dense(self, dense: Values, k: int, base: int, index_dtype: npt.DTypeLike) -> Pair:
        return _native.topk_dense(dense, k, base, _is_wide(index_dtype))

    def select(
        self, indices: Indices, values: Values, over_indices: Indices, over_values: Values, k: int, floor: float
    ) -> Selected:
        return Selected(*_native.select(indices, values, over_indices, over_values, k, floor))

    def split(self, indices: Indices, values: Values, k: int) -> Split:
        return Split(*_native.split(indices, values, k))

    def add_many(self, vectors: Sequence[Pair]) -> Pair:
        indices, values = vectors[0]
        for more_indices, more_values in vectors[1:]:
            indices, values = _native.add(indices, values, more_indices, more_values)
        return (indices, values) if len(vectors) > 1 else (indices.copy(), values.copy())

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
        return _native.unpack(low, high, count, base, bits, _is_wide(index_dtype), end)


def _is_wide(index_dtype: npt.DTypeLike) -> bool:
    return np.dtype(index_dtype).itemsize == 8


KERNELS = NativeKernels()
