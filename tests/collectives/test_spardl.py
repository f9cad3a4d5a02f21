"""SparDL equals the direct transcription of its definition, index for index and bit for bit."""

import numpy as np
import pytest
from configurations import Setup, setups
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference

from spardl import schedule
from spardl.runtime.loopback import Loopback


def assert_equals_reference(setup, backend, policy, make_gradients, reduces=4, looks=True):
    """``looks``: at residuals after every reduce; else the next pass over them finds them as the last one left them."""
    reducers = setup.reducers([backend], residual=policy)
    reference = Reference(setup.ranks, setup.teams, setup.n, setup.k, setup.dtype, setup.sag, policy)
    rng = np.random.default_rng(setup.seed)
    for number in range(1, reduces + 1):
        grads = make_gradients(rng)
        results = setup.reduce(reducers, grads)
        expected = reference.reduce(grads)
        for result in results:
            np.testing.assert_array_equal(result.indices, np.flatnonzero(expected))
            assert result.values.tobytes() == expected[expected != 0].tobytes()
        if looks or number == reduces:
            for reducer, residual in zip(reducers, reference.residual, strict=True):
                np.testing.assert_array_equal(reducer.residual, residual)


policies = st.sampled_from(["global", "global", "partial", "local"])


@given(setup=setups(), policy=policies, looks=st.booleans())
@settings(max_examples=250)
def test_equals_reference_on_floats(backend_name, setup, policy, looks):
    assert_equals_reference(setup, backend_name, policy, setup.float_gradients, looks=looks)


@given(setup=setups(max_n=1500), policy=policies, looks=st.booleans())
@settings(max_examples=250)
def test_equals_reference_on_integers_full_of_ties_and_zeros(setup, policy, looks):
    assert_equals_reference(setup, "native", policy, lambda rng: setup.integer_gradients(rng, 2), looks=looks)


@pytest.mark.parametrize("teams", [1, 3])
def test_equals_reference_over_many_reduces(teams):
    """B-SAG's width moves up, down and stops at its bounds; thresholds rise as residuals pile up."""
    setup = Setup(6, teams, "b", 4000, 300, "float32", "auto", 11, None)
    assert_equals_reference(setup, "native", "global", setup.float_gradients, reduces=60, looks=teams > 1)


@pytest.mark.parametrize("ranks", range(1, 17))
def test_counted_traffic_equals_the_schedule(ranks):
    for teams in schedule.team_counts(ranks):
        sags = ["r", "b"] if schedule.is_power_of_two(teams) else ["b"]
        for sag in sags:
            setup = Setup(ranks, teams, sag, 2000, 200, "float32", "raw", 3, None)
            grads = setup.float_gradients(np.random.default_rng(3))
            run = Loopback([r.reduce(g) for r, g in zip(setup.reducers(["native"]), grads, strict=True)])
            run.run()
            per_team = ranks // teams
            rounds = 2 * schedule.ceil_log2(per_team) + schedule.ceil_log2(teams)
            for rank, traffic in enumerate(run.traffic):
                walked = schedule.spardl(ranks, teams, rank, sag)
                assert traffic.rounds == traffic.messages_sent == len(walked) == rounds
                if sag == "r":  # B-SAG's blocks may fall short of their budgets
                    assert traffic.bytes_sent == raw_bytes(walked, schedule.cut_blocks(2000, 200, per_team).budgets)


def raw_bytes(walked, budgets):
    """Of full blocks: 8 bytes per entry, 48 per frame; a message has a digest, and lists its frames' lengths."""
    size = 0
    for r in walked:
        entries = [budgets[block] for block in r.sends]
        size += 8 * (2 + len(entries)) + sum(48 + 2 * (-(-4 * count // 8) * 8) for count in entries)
    return size


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 12, 16])
def test_entries_received_are_the_papers(ranks):
    """Equations (3) and (5): 4k(P-1)/P, and with R-SAG 2k((2P-2d)/P + d/P log2 d), indices and values both counted."""
    k = 840
    for teams in filter(schedule.is_power_of_two, schedule.team_counts(ranks)):
        budgets = schedule.cut_blocks(10**6, k, ranks // teams).budgets
        for rank in range(ranks):
            received = 2 * sum(budgets[b] for r in schedule.spardl(ranks, teams, rank, "r") for b in r.receives)
            expected = 2 * k * ((2 * ranks - 2 * teams) / ranks + teams / ranks * np.log2(teams))
            assert received == pytest.approx(expected, abs=4 * len(budgets))


def test_state_dict_goes_on_bit_for_bit():
    setup = Setup(6, 3, "b", 3000, 120, "float32", "auto", 2, None)
    rng = np.random.default_rng(2)
    gradients = [setup.float_gradients(rng) for _ in range(20)]
    straight, stopped = setup.reducers(["native"]), setup.reducers(["native"])
    for grads in gradients[:10]:
        setup.reduce(straight, grads)
        setup.reduce(stopped, grads)
    resumed = setup.reducers(["numba"])
    for new, old in zip(resumed, stopped, strict=True):
        new.load_state_dict(old.state_dict())
    for grads in gradients[10:]:
        a, b = setup.reduce(straight, grads)[0], setup.reduce(resumed, grads)[0]
        assert a.indices.tobytes() == b.indices.tobytes()
        assert a.values.tobytes() == b.values.tobytes()
    for one, other in zip(straight, resumed, strict=True):
        assert one.residual.tobytes() == other.residual.tobytes()


def test_a_residual_that_nobody_looks_at_survives_failures_and_undo():
    """What it still lacks has been written into some of it by then, or into all of it, or into its successor."""
    setup = Setup(4, 1, "r", 6000, 300, "float32", "auto", 9, None)
    rng = np.random.default_rng(9)
    first, second, third = (setup.float_gradients(rng) for _ in range(3))
    looked_at, left_alone = setup.reducers(["native"]), setup.reducers(["native"])
    for reducers in (looked_at, left_alone):
        setup.reduce(reducers, first)
    assert all(r.residual.any() for r in looked_at)
    assert all(r._residual.corrections is not None for r in left_alone)
    for bad in range(0, setup.n, 1500):  # in every block, so that some ranks have passed over more than others
        nan = [grad.copy() for grad in second]
        nan[bad // 1500][bad] = np.nan
        for reducers in (looked_at, left_alone):
            with pytest.raises(ValueError, match=f"rank {bad // 1500} at index {bad}"):
                setup.reduce(reducers, nan)
    for reducers in (looked_at, left_alone):
        setup.reduce(reducers, second)
        for reducer in reducers:
            reducer.undo()
        setup.reduce(reducers, third)
    for one, other in zip(looked_at, left_alone, strict=True):
        assert one.residual.tobytes() == other.residual.tobytes()


def test_a_reduce_that_fails_changes_nothing():
    setup = Setup(4, 2, "b", 1000, 50, "float32", "auto", 9, None)
    reducers = setup.reducers(["native"])
    rng = np.random.default_rng(9)
    setup.reduce(reducers, setup.float_gradients(rng))
    before = [r.state_dict() for r in reducers]
    overflow = [np.full(setup.n, 3e38, np.float32) for _ in range(4)]
    with pytest.raises(ValueError, match="overflows at index"):
        setup.reduce(reducers, overflow)
    nan = setup.float_gradients(rng)
    nan[2][17] = np.nan
    with pytest.raises(ValueError, match="rank 2 at index 17"):
        setup.reduce(reducers, nan)
    for state, reducer in zip(before, reducers, strict=True):
        after = reducer.state_dict()
        assert state["residual"].tobytes() == after["residual"].tobytes()
        assert state["thresholds"].tobytes() == after["thresholds"].tobytes()
        assert state["width"] == after["width"]
