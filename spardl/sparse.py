"""Sparse vectors: the currency of the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

VALUE_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def index_dtype(size: int) -> np.dtype[Any]:
    """int32 while every index of a vector of ``size`` elements fits, else int64."""
    return np.dtype(np.int32 if size <= 2**31 else np.int64)


class SparseVector:
    """Entries of a vector of ``size`` elements; all others are zero.

    ``indices`` are strictly increasing, int32 (int64 when ``size`` is past 2**31); ``values`` float32 or float64.
    """

    __slots__ = ("_indices", "size", "values")

    _indices: npt.NDArray[Any] | None
    values: npt.NDArray[Any]
    size: int

    def __init__(self, indices: npt.ArrayLike, values: npt.ArrayLike, size: int) -> None:
        index_array, value_array = np.asarray(indices), np.asarray(values)
        if index_array.size == 0:
            index_array = index_array.astype(np.int32)  # an empty list comes as float64
        if index_array.ndim != 1 or value_array.ndim != 1 or len(index_array) != len(value_array):
            raise ValueError(
                "SparseVector: expected indices and values of one dimension and equal length, "
                f"got shapes {index_array.shape} and {value_array.shape}"
            )
        if not np.issubdtype(index_array.dtype, np.integer):
            raise TypeError(f"SparseVector: expected integer indices, got {index_array.dtype}")
        if value_array.dtype not in VALUE_DTYPES:
            raise TypeError(f"SparseVector: expected float32 or float64 values, got {value_array.dtype}")
        if len(index_array) and (index_array[0] < 0 or index_array[-1] >= size):
            raise ValueError(
                f"SparseVector: expected indices in 0…{size - 1}, got {index_array[0]} … {index_array[-1]}"
            )
        if np.any(index_array[1:] <= index_array[:-1]):
            raise ValueError("SparseVector: expected strictly increasing indices, got some out of order or twice")
        self._indices = np.ascontiguousarray(index_array, dtype=index_dtype(size))
        self.values = np.ascontiguousarray(value_array)
        self.size = size

    @classmethod
    def trusted(cls, indices: npt.NDArray[Any] | None, values: npt.NDArray[Any], size: int) -> SparseVector:
        """Without the checks, for arrays that are right by construction; None stands for every index."""
        vector = cls.__new__(cls)
        vector._indices, vector.values, vector.size = indices, values, size
        return vector

    @property
    def indices(self) -> npt.NDArray[Any]:
        if self._indices is None:
            self._indices = np.arange(self.size, dtype=index_dtype(self.size))
        return self._indices

    @property
    def nnz(self) -> int:
        """How many entries are stored."""
        return len(self.values)

    def to_dense(self) -> npt.NDArray[Any]:
        """All ``size`` elements, zeros included."""
        if not isinstance(self.values, np.ndarray):
            raise TypeError("to_dense: this vector is on a GPU; copy its indices and values to the host first")
        dense = np.zeros(self.size, self.values.dtype)
        dense[self.indices] = self.values
        return dense

    def __repr__(self) -> str:
        return f"SparseVector(nnz={self.nnz}, size={self.size}, dtype={self.values.dtype})"
