"""What a rank contributes for gradients that wait, worked out by hand."""

import numpy as np
import pytest

from spardl.sync.box import SummingBox, WeightingBox


def taken(box, versions, round):
    """What is contributed for one gradient of each version: they are the axes, so it tells their weights."""
    for axis, version in zip(np.eye(len(versions)), versions, strict=True):
        box.deposit(axis, version)
    return box.take(round)


@pytest.mark.parametrize(
    ("versions", "weights"),
    [
        ([7, 10], [1 / 5, 4 / 5]),  # 7 − 7 + 1 = 1 and 10 − 7 + 1 = 4
        ([3, 4, 5], [1 / 6, 2 / 6, 3 / 6]),  # one after the other
        ([2, 2, 5], [1 / 6, 1 / 6, 4 / 6]),
        ([6, 6], [1 / 2, 1 / 2]),
        ([9], [1]),
    ],
)
def test_a_gradient_weighs_by_the_iterations_since_the_oldest(versions, weights):
    np.testing.assert_allclose(taken(WeightingBox(8, 1.0), versions, round=10), weights, rtol=1e-15)


def test_weights_are_relative_to_the_oldest_that_is_not_dropped():
    box = WeightingBox(4, 1.0)
    np.testing.assert_allclose(taken(box, [5, 7, 10], round=10), [0, 1 / 5, 4 / 5], rtol=1e-15)
    assert box.metrics.dropped == 1


def test_taking_changes_nothing_that_waits():
    box = WeightingBox(4, 1.0)
    np.testing.assert_array_equal(taken(box, [7, 10], round=10), box.take(10))


def test_nothing_to_take():
    assert WeightingBox(4, 1.0).take(3) is None
    assert SummingBox(4, 1.0).take(3) is None


def test_sparse_contributions_are_sums():
    np.testing.assert_array_equal(taken(SummingBox(4, 1.0), [1, 7, 10], round=10), [1, 1, 1])
