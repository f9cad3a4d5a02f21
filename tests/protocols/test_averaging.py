"""What groups hear of each other's weights."""

import numpy as np

from spardl.protocols.rna.averaging import Averager


def test_a_group_counts_as_much_as_it_has_ranks():
    averager = Averager([3, 1])
    np.testing.assert_array_equal(averager.push(0, np.array([8.0, 0.0])), [8.0, 0.0])  # nobody else was here yet
    np.testing.assert_array_equal(averager.push(1, np.array([0.0, 4.0])), [6.0, 1.0])
    np.testing.assert_array_equal(averager.push(0, np.array([4.0, 4.0])), [3.0, 4.0])  # the latest counts


def test_the_mean_does_not_depend_on_who_came_first():
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(100).astype(np.float32) for _ in range(3)]
    means = []
    for order in ([0, 1, 2], [2, 0, 1]):
        averager = Averager([1, 2, 4])
        means.append([averager.push(group, weights[group]) for group in order][-1])
    assert means[0].tobytes() == means[1].tobytes()
    assert means[0].dtype == np.float32
