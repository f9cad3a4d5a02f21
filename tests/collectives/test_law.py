"""The law of conservation and consensus: nothing lost, nothing counted twice, every rank the same bits."""

import numpy as np
import pytest
from configurations import Setup, bits, setups, total
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spardl import schedule
from spardl.runtime.loopback import Loopback

REDUCES = 3


def assert_law_exactly(setup, backends, reduces=REDUCES, looks=True):
    """``looks``: at residuals after every reduce, not only at the end."""
    reducers = setup.reducers(backends)
    rng = np.random.default_rng(setup.seed)
    owed = np.zeros(setup.n)
    for number in range(1, reduces + 1):
        grads = setup.integer_gradients(rng, reduces)
        results = setup.reduce(reducers, grads)
        assert len({bits(result) for result in results}) == 1
        assert results[0].nnz <= setup.k
        owed += total(grads, setup.n) - results[0].to_dense()
        if looks or number == reduces:
            np.testing.assert_array_equal(owed, total([r.residual for r in reducers], setup.n))


@given(setup=setups(), looks=st.booleans())
@settings(max_examples=800)
def test_law_and_consensus_exactly_on_integers(backend_name, setup, looks):
    assert_law_exactly(setup, [backend_name], looks=looks)


@given(setup=setups())
@settings(max_examples=200)
def test_ranks_with_different_backends_agree(setup):
    assert_law_exactly(setup, ["native", "numba", "numpy"])


@pytest.mark.parametrize("ranks", range(1, 18))
def test_law_for_every_number_of_ranks_and_teams(ranks):
    """No luck of the draw: every P, every d that divides it, both SAGs where they apply, sizes around P."""
    for teams in schedule.team_counts(ranks):
        for sag in ["r", "b"] if schedule.is_power_of_two(teams) else ["b"]:
            for n in {0, 1, ranks - 1, ranks, ranks + 1, 500}:
                for k in {0, 1, ranks - 1, n // 10, n, n + 5}:
                    setup = Setup(ranks, teams, sag, n, k, "float32", "auto", 1000 * ranks + n + k, 7)
                    assert_law_exactly(setup, ["native"], reduces=2)


@given(setup=setups(), wire_dtype=st.sampled_from(["same", "bf16", "fp16"]))
@settings(max_examples=300)
def test_law_to_rounding_error_on_random_floats(backend_name, setup, wire_dtype):
    reducers = setup.reducers([backend_name], wire_dtype=wire_dtype)
    rng = np.random.default_rng(setup.seed)
    eps = np.finfo(setup.dtype).eps
    for _ in range(REDUCES):
        grads = setup.float_gradients(rng)
        owed = total(grads, setup.n) + total([r.residual for r in reducers], setup.n)
        size = total([np.abs(g) for g in grads] + [np.abs(r.residual) for r in reducers], setup.n)
        results = setup.reduce(reducers, grads)
        assert len({bits(result) for result in results}) == 1
        error = np.abs(owed - results[0].to_dense() - total([r.residual for r in reducers], setup.n))
        assert np.all(error <= 8 * setup.ranks * eps * size)


@given(setup=setups(max_n=1200), wire_dtype=st.sampled_from(["bf16", "fp16"]))
@settings(max_examples=200)
def test_law_holds_exactly_with_rounded_values(setup, wire_dtype):
    """Integers that 16 bits cannot hold: the rounding error is exact, and stays with the sender."""
    assume(schedule.is_power_of_two(setup.teams))  # a share of a rounding error has to be exact as well
    reducers = setup.reducers(["native"], wire_dtype=wire_dtype)
    rng = np.random.default_rng(setup.seed)
    grads = list(rng.integers(-3000, 3001, (setup.ranks, setup.n)).astype(setup.dtype))
    results = setup.reduce(reducers, grads)
    left = total([r.residual for r in reducers], setup.n)
    np.testing.assert_array_equal(total(grads, setup.n), results[0].to_dense().astype(np.float64) + left)


@given(setup=setups(max_n=1200), order=st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_results_do_not_depend_on_the_order_of_delivery(setup, order):
    grads = setup.float_gradients(np.random.default_rng(setup.seed))
    in_turn, shuffled = (
        Loopback([r.reduce(g) for r, g in zip(setup.reducers(["native"]), grads, strict=True)], seed=seed).run()
        for seed in (None, order)
    )
    assert [bits(v) for v in in_turn] == [bits(v) for v in shuffled]


@pytest.mark.parametrize("policy", ["partial", "local"])
def test_other_policies_lose_gradients_as_documented(policy):
    setup = Setup(6, 1, "r", 600, 30, "float64", "auto", 5, None)
    reducers = setup.reducers(["native"], residual=policy)
    grads = setup.integer_gradients(np.random.default_rng(5), 1)
    result = setup.reduce(reducers, grads)[0]
    left = total([r.residual for r in reducers], setup.n)
    assert not np.array_equal(total(grads, setup.n), result.to_dense() + left)
