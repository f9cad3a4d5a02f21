"""What each way of collecting residuals keeps, worked out by hand."""

import numpy as np
import pytest
from configurations import Setup

# Four ranks, eight elements, one entry of each block of two. In block 0 (elements 0 and 1) rank 1 sends its 3 to rank
# 3, which sends the larger of 1 + 3 and 9. Rank 2 sends its 5 to rank 0, which keeps 20 + 5 rather than 9.
GRADIENTS = np.zeros((4, 8))
GRADIENTS[:, :2] = [[20, 0], [3, 0], [5, 0], [1, 9]]

# The result has element 0. Rank 3 dropped 4 there, of which 3 is rank 1's: an in-procedure residual.
# It sent element 1, which the result lacks: an end-procedure residual.
KEPT = {
    "global": [[0, 0], [0, 0], [0, 0], [4, 9]],
    "partial": [[0, 0], [0, 0], [0, 0], [1, 9]],
    "local": [[0, 0], [0, 0], [0, 0], [1, 0]],
}


@pytest.mark.parametrize("policy", KEPT)
def test_what_is_kept(backend_name, policy):
    setup = Setup(4, 1, "r", 8, 4, "float64", "raw", 0, None)
    reducers = setup.reducers([backend_name], residual=policy)
    for result in setup.reduce(reducers, list(GRADIENTS)):
        np.testing.assert_array_equal(result.to_dense(), [25, *[0] * 7])
    np.testing.assert_array_equal([reducer.residual[:2] for reducer in reducers], KEPT[policy])
    assert not any(reducer.residual[2:].any() for reducer in reducers)


# Two teams of one rank, two elements, one to keep: rank 0 sends its 5, rank 1 its 6, and the 6 is kept. Rank 0 had 4
# there but did not send it; nobody may forget that.
def test_partial_keeps_what_was_not_sent_at_an_index_of_the_result(backend_name):
    setup = Setup(2, 2, "r", 2, 1, "float64", "raw", 0, None)
    reducers = setup.reducers([backend_name], residual="partial")
    setup.reduce(reducers, [np.array([5.0, 4.0]), np.array([1.0, 6.0])])
    np.testing.assert_array_equal([reducer.residual for reducer in reducers], [[5, 4], [1, 0]])
