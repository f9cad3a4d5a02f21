"""Groups by speed: a partition into homogeneous groups, the same whoever computes it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spardl.protocols.rna.grouping import group_by_speed

TIMES = st.lists(
    st.one_of(
        st.floats(0, allow_infinity=False),  # also the smallest and the largest there are
        st.integers(0, 50).map(float),  # with many equal ones
        st.integers(-300, 300).map(lambda e: 10.0**e),  # which are split again and again
    ),
    min_size=1,
    max_size=40,
)


def spread_and_mean(times):
    exact = [Fraction(time) for time in times]
    return max(exact) - min(exact), sum(exact) / len(exact)


@given(TIMES)
def test_a_partition_into_groups_that_need_no_split(seconds):
    groups = group_by_speed(seconds)
    assert sorted(rank for group in groups for rank in group) == list(range(len(seconds)))
    for group in groups:
        assert group
        assert list(group) == sorted(group)
        spread, mean = spread_and_mean([seconds[rank] for rank in group])
        assert spread <= mean


@given(TIMES)
def test_from_fast_to_slow_without_overlap(seconds):
    times = [[seconds[rank] for rank in group] for group in group_by_speed(seconds)]
    assert all(max(faster) < min(slower) for faster, slower in itertools.pairwise(times))


@given(TIMES)
def test_one_group_exactly_if_the_spread_is_within_the_mean(seconds):
    spread, mean = spread_and_mean(seconds)
    assert (len(group_by_speed(seconds)) == 1) == (spread <= mean)


@given(TIMES, st.randoms(use_true_random=False))
def test_follows_the_times_and_not_the_ranks(seconds, random):
    """Renumbering the ranks renumbers the groups and changes nothing else."""
    new_number = list(range(len(seconds)))
    random.shuffle(new_number)
    renumbered = [0.0] * len(seconds)
    for rank, number in enumerate(new_number):
        renumbered[number] = seconds[rank]
    expected = [tuple(sorted(new_number[rank] for rank in group)) for group in group_by_speed(seconds)]
    assert group_by_speed(renumbered) == expected


@pytest.mark.parametrize(
    ("milliseconds", "groups"),
    [
        ([7], [(0,)]),
        ([0, 0, 0], [(0, 1, 2)]),
        ([20] * 5, [(0, 1, 2, 3, 4)]),
        ([10, 30], [(0, 1)]),  # ζ = v = 20: not more, so not split
        ([10, 31], [(0,), (1,)]),
        ([100, 10, 110, 12], [(1, 3), (0, 2)]),
        ([10, 25, 40], [(0, 1), (2,)]),  # who takes exactly v is fast
        ([1, 10, 100, 1000], [(0,), (1,), (2,), (3,)]),
        ([10, 10, 10, 10, 10, 10, 10, 22, 10, 10], [(0, 1, 2, 3, 4, 5, 6, 8, 9), (7,)]),
    ],
)
def test_by_hand(milliseconds, groups):
    assert group_by_speed([time / 1024 for time in milliseconds]) == groups


def test_takes_an_array():
    assert group_by_speed(np.array([0.1, 0.01, 0.1], np.float32)) == [(1,), (0, 2)]


def test_hundreds_of_levels():
    """Times so far apart that every split takes off one rank only."""
    times = [2.0 ** (8 * level - 1000) for level in range(240)]
    assert group_by_speed(times) == [(rank,) for rank in range(240)]


@pytest.mark.parametrize("time", [-0.001, float("nan"), float("inf"), -float("inf")])
def test_impossible_times_are_named(time):
    with pytest.raises(ValueError, match=rf"seconds: expected finite numbers >= 0, got {time} for rank 1"):
        group_by_speed([0.1, time, -1])


def test_no_ranks():
    with pytest.raises(ValueError, match="seconds: expected the time of at least one rank, got none"):
        group_by_speed([])
