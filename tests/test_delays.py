"""Injected delays: within their bounds, the same for the same seed, on the ranks they are meant for."""

import dataclasses

import numpy as np
import pytest

from spardl.delays import parse_delay

RANKS, ITERATIONS, COMPUTE = 6, 2000, 0.010


def sample(text, ranks=RANKS, seed=0):
    """Seconds by iteration and rank."""
    delay = parse_delay(text, seed)
    return np.array([[delay.seconds(r, ranks, i, COMPUTE) for r in range(ranks)] for i in range(ITERATIONS)])


def check_uniform(seconds, low, high):
    assert ((seconds >= low) & (seconds <= high)).all()
    width = high - low
    assert seconds.mean() == pytest.approx((low + high) / 2, abs=5 * width / np.sqrt(12 * seconds.size))
    assert seconds.std() == pytest.approx(width / np.sqrt(12), rel=0.05)


def test_none():
    assert not sample("none").any()


def test_uniform():
    check_uniform(sample("uniform:0:50ms"), 0, 0.050)
    check_uniform(sample("uniform:10:50ms", ranks=1), 0.010, 0.050)


def test_slow_half():
    seconds = sample("slow-half:50:100ms")
    assert not seconds[:, :3].any()
    check_uniform(seconds[:, 3:], 0.050, 0.100)


@pytest.mark.parametrize(("ranks", "slow"), [(1, []), (2, [1]), (3, [2]), (5, [3, 4])])
def test_the_middle_rank_is_fast(ranks, slow):
    delay = parse_delay("slow-half:1:2s")
    assert [rank for rank in range(ranks) if delay.seconds(rank, ranks, 0, COMPUTE)] == slow


@pytest.mark.parametrize(("text", "factor"), [("random6x", 6), ("random2.5x", 2.5)])
def test_random_slowdown(text, factor):
    """The whole iteration takes `factor` times as long, on one rank per iteration on average."""
    seconds = sample(text)
    assert set(seconds.ravel()) == {0.0, (factor - 1) * COMPUTE}
    per_iteration = (seconds > 0).sum(axis=1)
    assert per_iteration.mean() == pytest.approx(1, abs=5 / np.sqrt(ITERATIONS))
    assert per_iteration.max() > 1  # ranks do not take turns


@pytest.mark.parametrize(("ranks", "slow"), [(1, 0), (2, 0), (3, 1), (5, 1), (10, 2), (13, 3)])
def test_a_fifth_of_the_ranks_is_slow_for_good(ranks, slow):
    seconds = sample("slow:0.2:2x", ranks)
    assert not seconds[:, : ranks - slow].any()
    assert (seconds[:, ranks - slow :] == COMPUTE).all()


def test_mixed_heterogeneity_of_the_paper():
    seconds = sample("uniform:0:50ms+slow-half:50:50ms")
    check_uniform(seconds[:, :3], 0, 0.050)
    check_uniform(seconds[:, 3:], 0.050, 0.100)


def test_draws_are_independent():
    """Between iterations, ranks, seeds and the parts of a sum."""
    one, other = sample("uniform:0:1s"), sample("uniform:0:1s", seed=1)
    second = sample("uniform:0:1s+uniform:0:1s") - one
    for a, b in [(one[:-1], one[1:]), (one[:, :-1], one[:, 1:]), (one, other), (one, second)]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)


def test_the_same_from_the_same_seed_in_any_order():
    forwards, backwards = parse_delay("uniform:0:50ms", 7), parse_delay("uniform:0:50ms", 7)
    numbers = [forwards.seconds(2, RANKS, i, COMPUTE) for i in range(10)]
    assert numbers == [backwards.seconds(2, RANKS, i, COMPUTE) for i in reversed(range(10))][::-1]
    assert forwards == backwards


def test_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse_delay("none").seed = 1


@pytest.mark.parametrize(
    "text", ["uniform:0.1:0.2ms", "uniform:100us:0.2ms", "uniform:0.0001s:200us", " uniform:100:200us "]
)
def test_units(text):
    assert parse_delay(text) == parse_delay("uniform:0.1ms:0.2ms")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "delay '': expected none, uniform:LOW:HIGH, slow-half:LOW:HIGH, slow:SHARE:FACTOR or random .*6x"),
        ("fast", "delay 'fast': expected none, uniform:LOW:HIGH, .*, as in random6x"),
        ("randomx", "delay 'randomx': expected none, .*, as in random6x"),
        ("random0.5x", "delay 'random0.5x': expected a factor of at least 1, .*got 0.5x, as in random6x"),
        ("uniform", "delay 'uniform': expected two times, the shorter first, got 0, as in uniform:0:50ms"),
        ("slow-half:50ms", "'slow-half:50ms': expected two times, the shorter first, got 1, as in slow-half:50:100ms"),
        ("uniform:0:50", r"expected a unit after the last time \(us, ms, s\), got none, as in uniform:0:50ms"),
        ("uniform:0ms:50", "expected a unit after the last time"),
        ("uniform:0:50min", "expected times >= 0 in us, ms, s, got '50min', as in uniform:0:50ms"),
        ("uniform:-1:50ms", "expected times >= 0 in us, ms, s, got '-1'"),
        ("uniform:nan:50ms", "got 'nan'"),
        ("uniform:1s:50ms", "delay 'uniform:1s:50ms': expected the shorter time first, got the longer one"),
        ("random6x+slow", "delay 'slow': expected a share of the ranks from 0 to 1 and a factor, as in slow:0.2:2x"),
        ("slow:1.5:2x", "expected a share of the ranks from 0 to 1"),
        ("slow:0.5:2", "expected a factor of at least 1, as in 2x, got 2"),
        ("random6x+fast", "delay 'fast': expected none"),
        ("random6x+", "delay '': expected none"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(ValueError, match=message):
        parse_delay(text)
