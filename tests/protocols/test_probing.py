"""Probes: drawn fairly and alike on all ranks; the second is worth it, the third much less."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spardl.protocols.rna.probing import draw_probes, response_seconds

SEEDS = st.integers(0, 2**64)
ROUNDS = st.integers(0, 2**40)


@given(SEEDS, ROUNDS, st.integers(1, 10_000), st.integers(1, 40))
def test_distinct_ranks_as_many_as_asked_for(seed, round, ranks, q):
    probes = draw_probes(seed, round, ranks, q)
    assert len(set(probes)) == len(probes) == min(q, ranks)
    assert all(0 <= rank < ranks for rank in probes)
    assert probes == draw_probes(seed, round, ranks, q)


@given(SEEDS, ROUNDS, st.integers(1, 100), st.integers(1, 100))
def test_fewer_probes_are_the_first_of_more(seed, round, ranks, q):
    assert draw_probes(seed, round, ranks, q) == draw_probes(seed, round, ranks, ranks)[:q]


@pytest.mark.parametrize(("ranks", "q"), [(5, 1), (5, 2), (4, 3), (4, 4)])
def test_every_sequence_is_equally_likely(ranks, q):
    """A χ² test, with a bound so far out that a fair draw is not expected to cross it under any seed."""
    rounds = 12_000
    places = {sequence: place for place, sequence in enumerate(itertools.permutations(range(ranks), q))}
    counts = np.bincount([places[draw_probes(3, i, ranks, q)] for i in range(rounds)], minlength=len(places))
    expected = rounds / len(places)
    chi_square = np.sum((counts - expected) ** 2) / expected
    freedom = len(places) - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom) + 15


def test_rounds_and_seeds_are_independent():
    """Whoever is probed now is no more likely than others to be probed next, or under another seed."""
    ranks, rounds = 10, 20_000
    first = np.array([draw_probes(0, i, ranks, 1)[0] for i in range(rounds)])
    other = np.array([draw_probes(1, i, ranks, 1)[0] for i in range(rounds)])
    for again in (first[:-1] == first[1:], first == other):
        assert again.mean() == pytest.approx(1 / ranks, abs=5 * np.sqrt(0.09 / rounds))


def test_cost_does_not_grow_with_ranks():
    assert len(draw_probes(0, 0, 2**60, 3)) == 3  # whatever looked at every rank would not come back


@pytest.mark.parametrize(("ranks", "q"), [(0, 1), (-1, 1), (3, 0), (3, -2)])
def test_nobody_to_probe(ranks, q):
    with pytest.raises(ValueError, match=f"at least 1, got ranks = {ranks}, q = {q}"):
        draw_probes(0, 0, ranks, q)


# -- the experiment ----------------------------------------------------------------------------------------------------


def responses(seed, rounds=10_000, nodes=100, most=5):
    return response_seconds(np.random.default_rng(seed).uniform(0.010, 0.050, (rounds, nodes)), most, seed)


def test_a_round_waits_for_the_fastest_probed():
    ready = np.random.default_rng(0).random((50, 7))
    waited = response_seconds(ready, 7, seed=5)
    for round, q in itertools.product(range(50), range(1, 8)):
        assert waited[round, q - 1] == ready[round, list(draw_probes(5, round, 7, q))].min()
    np.testing.assert_array_equal(waited[:, 6], ready.min(axis=1))


@pytest.mark.parametrize("seed", range(3))
def test_two_probes_beat_one_and_more_bring_little(seed):
    one, two, three, four, five = np.median(responses(seed), axis=0)
    assert two < 0.75 * one
    # Each further probe saves less than the one before, the third less than half of what the second did,
    assert one - two > 2 * (two - three)
    assert two - three > three - four > four - five > 0
    # and the last three together less than the second alone.
    assert one - two > two - five


def test_medians_are_those_of_the_distribution():
    """Of q independent times that are uniform on 10 to 50 ms, the least has its median at 10 + 40 (1 − 2^(−1/q))."""
    expected = [0.010 + 0.040 * (1 - 2 ** (-1 / q)) for q in range(1, 6)]
    assert np.median(responses(0), axis=0) == pytest.approx(expected, abs=0.001)


def test_never_worse_with_more_probes():
    assert (np.diff(responses(0), axis=1) <= 0).all()


@pytest.mark.parametrize("most", [0, 4])
def test_as_many_probes_as_ranks_at_most(most):
    with pytest.raises(ValueError, match=f"most: expected from 1 to the 3 ranks, got {most}"):
        response_seconds(np.ones((2, 3)), most, seed=0)
