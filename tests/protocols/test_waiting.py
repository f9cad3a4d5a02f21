"""What a rank contributes for gradients that wait, worked out by hand."""

import numpy as np
import pytest

from spardl.protocols.rna.waiting import Summed, Weighted


def taken(waiting, versions, round):
    """What is contributed for one gradient of each version: they are the axes, so it tells their weights."""
    for axis, version in zip(np.eye(len(versions)), versions, strict=True):
        waiting.add(version, axis)
    return waiting.take(round)


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
    np.testing.assert_allclose(taken(Weighted(8), versions, round=10), weights, rtol=1e-15)


def test_weights_are_relative_to_the_oldest_that_is_not_dropped():
    waiting = Weighted(4)
    np.testing.assert_allclose(taken(waiting, [5, 7, 10], round=10), [0, 1 / 5, 4 / 5], rtol=1e-15)
    assert waiting.tell_dropped() == 1
    assert waiting.tell_dropped() == 0  # told once


def test_taking_changes_nothing_that_waits():
    waiting = Weighted(4)
    np.testing.assert_array_equal(taken(waiting, [7, 10], round=10), waiting.take(10))


def test_nothing_to_take():
    assert Weighted(4).take(3) is None
    assert Summed().take(3) is None


def test_sparse_contributions_are_sums():
    np.testing.assert_array_equal(taken(Summed(), [1, 7, 10], round=10), [1, 1, 1])


def test_what_was_taken_is_let_go_and_what_came_since_waits():
    waiting = Summed()
    taken(waiting, [3, 5], round=6)
    waiting.add(6, np.ones(2))
    assert waiting.let_go(6) == (3, 1)
    assert waiting.let_go(6) == ()
    np.testing.assert_array_equal(waiting.take(7), [1, 1])


def test_a_gradient_is_dropped_when_it_is_older_than_the_bound_and_not_before():
    for staleness in range(1, 5):
        waiting = Weighted(staleness)
        waiting.add(10, np.ones(1))
        assert waiting.take(10 + staleness) is not None
        assert waiting.take(11 + staleness) is None
        assert waiting.tell_dropped() == 1
