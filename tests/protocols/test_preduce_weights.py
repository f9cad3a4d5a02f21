"""How much members of a group count."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spardl.protocols.preduce.weights import FILLS, Constant, Dynamic

iterations = st.lists(st.integers(0, 200_000), min_size=1, max_size=8)
alphas = st.floats(0.01, 1.0)

# T-PR-1: by default, newest, nearest, stalest
WORKED = {
    (10, 7): [(0.889, 0.111), (0.933, 0.067), (0.8, 0.2), (0.533, 0.467)],
    (10, 10, 7): [(0.471, 0.471, 0.059), (0.467, 0.467, 0.067), (0.4, 0.4, 0.2), (0.267, 0.267, 0.467)],
    (10, 9, 7): [(0.615, 0.308, 0.077), (0.667, 0.267, 0.067), (0.533, 0.4, 0.067), (0.533, 0.267, 0.2)],
    (8, 7): [(0.667, 0.333)] * 4,
}


@pytest.mark.parametrize("seen", WORKED)
@pytest.mark.parametrize(("place", "fill"), list(enumerate((None, *FILLS))))
def test_worked_cases(seen, place, fill):
    assert Dynamic(0.5, fill).shares(seen) == pytest.approx(WORKED[seen][place], abs=5e-4)


@given(iterations, alphas, st.sampled_from((None, *FILLS)))
def test_weights_sum_to_one_and_none_is_negative(seen, alpha, fill):
    shares = Dynamic(alpha, fill).shares(seen)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0


@given(iterations, alphas)
def test_by_default_an_older_model_never_counts_more(seen, alpha):
    ordered = Dynamic(alpha).shares(sorted(seen, reverse=True))
    assert all(newer >= older for newer, older in itertools.pairwise(ordered))


@given(iterations, alphas, st.sampled_from((None, *FILLS)))
def test_the_order_of_members_does_not_matter(seen, alpha, fill):
    shares = Dynamic(alpha, fill).shares(seen)
    assert Dynamic(alpha, fill).shares(seen[::-1]) == pytest.approx(shares[::-1])


@given(st.integers(1, 8), st.integers(0, 10**6), alphas, st.sampled_from((None, *FILLS)))
def test_equal_iterations_give_equal_weights_exactly(members, iteration, alpha, fill):
    expected = [1 / members] * members
    assert Constant().shares([iteration] * members) == expected
    if fill is None:
        assert Dynamic(alpha, fill).shares([iteration] * members) == expected
    else:
        assert Dynamic(alpha, fill).shares([iteration] * members) == pytest.approx(expected)


@given(iterations)
def test_alpha_of_one_counts_all_alike(seen):
    assert Dynamic(1.0).shares(seen) == Constant().shares(seen)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.sampled_from([0.3, 0.5, 0.9, 1.0]))
def test_what_nobody_has_goes_where_it_should(seen, alpha):
    """Against a loop over all numbers."""
    numbers = [max(seen) - iteration + 1 for iteration in seen]
    weigh = {number: alpha ** (number - 1) for number in range(1, max(numbers) + 1)}
    choices = {
        "newest": lambda number: min(numbers),
        "stalest": lambda number: max(numbers),
        "nearest": lambda number: min(numbers, key=lambda own: (abs(own - number), own)),
    }
    for fill, heir in choices.items():
        held = dict.fromkeys(numbers, 0.0)
        for number, weight in weigh.items():
            held[number if number in held else heir(number)] += weight
        expected = [held[number] / numbers.count(number) / sum(weigh.values()) for number in numbers]
        assert Dynamic(alpha, fill).shares(seen) == pytest.approx(expected)
