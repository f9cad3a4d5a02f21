"""SparseVector checks its arguments at the door."""

import numpy as np
import pytest

from spardl import SparseVector


def test_round_trip():
    vector = SparseVector([1, 4], np.array([2.0, -1.0], np.float32), 6)
    assert (vector.nnz, vector.size, vector.indices.dtype) == (2, 6, np.int32)
    np.testing.assert_array_equal(vector.to_dense(), np.array([0, 2, 0, 0, -1, 0], np.float32))
    assert repr(vector) == "SparseVector(nnz=2, size=6, dtype=float32)"


def test_wide_indices_past_two_to_the_31():
    assert SparseVector([2**33], [1.0], 2**34).indices.dtype == np.int64


def test_empty():
    assert SparseVector([], np.empty(0), 0).to_dense().shape == (0,)


@pytest.mark.parametrize(
    ("indices", "values", "size", "error", "words"),
    [
        ([0, 1], [1.0], 5, ValueError, "equal length"),
        ([[0]], [[1.0]], 5, ValueError, "one dimension"),
        ([0.5], [1.0], 5, TypeError, "integer indices, got float64"),
        ([0], [1], 5, TypeError, "float32 or float64 values, got int64"),
        ([5], [1.0], 5, ValueError, "indices in 0…4, got 5"),
        ([-1], [1.0], 5, ValueError, "indices in 0…4"),
        ([2, 2], [1.0, 1.0], 5, ValueError, "strictly increasing"),
    ],
)
def test_wrong_arguments(indices, values, size, error, words):
    with pytest.raises(error, match=words):
        SparseVector(indices, values, size)
