"""Sums of sparse rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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
