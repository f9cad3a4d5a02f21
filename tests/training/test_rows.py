"""Sums of sparse rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spardl import WireError
from spardl.torch.rows import _from_frame, _to_frame, add_rows


@given(
    st.lists(hnp.arrays(np.int64, st.integers(0, 6), elements=st.integers(0, 9), unique=True), min_size=1, max_size=5)
)
def test_sum(parts):
    rng = np.random.default_rng(0)
    sets = [(np.sort(rows), rng.integers(-9, 9, (len(rows), 3)).astype(np.float32)) for rows in parts]
    dense = np.zeros((10, 3), np.float32)
    for rows, values in sets:
        dense[rows] += values
    framed = [_from_frame(_to_frame(*part), np.dtype(np.float32), (10, 3)) for part in sets]
    rows, values = add_rows(framed)
    assert list(rows) == sorted({row for part in parts for row in part})
    np.testing.assert_array_equal(values, dense[rows])


def test_rows_that_are_not_of_the_parameter_are_refused():
    """They would be written where nobody looks for them."""
    rows, values = np.array([2, 5, 9]), np.ones((3, 4), np.float32)
    frame = _to_frame(rows, values)
    shape, dtype = (10, 4), np.dtype(np.float32)
    assert _from_frame(frame, dtype, shape)[0].tolist() == [2, 5, 9]
    numbers = {0: [-1, 2, 4, 2**40, -(2**63)], 1: [-1, 5, 6], 2: [2, 1, 9, 10], 3: [10, 5, 2**62, -3]}
    for place, wrong in numbers.items():
        for number in wrong:
            damaged = frame.copy()
            damaged[8 * place : 8 * place + 8].view(np.int64)[0] = number
            with pytest.raises(WireError, match="arrived that are"):
                _from_frame(damaged, dtype, shape)
    for cut in (frame[:0], frame[:7], frame[:8], frame[:-1], frame[:-16], np.append(frame, np.uint8(0))):
        with pytest.raises(WireError, match=r"not rows of a parameter of shape \[10, 4\]"):
            _from_frame(cut, dtype, shape)
