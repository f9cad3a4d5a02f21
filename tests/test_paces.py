"""Paces: within their bounds, the same for the same seed, and files checked before they are believed."""

import json

import numpy as np
import pytest

from spardl.paces import parse_pace

RANKS, ITERATIONS = 5, 2000


def sample(text, seed=0):
    """Seconds by iteration and rank."""
    pace = parse_pace(text, seed)
    return np.array([[pace.seconds(r, RANKS, i) for r in range(RANKS)] for i in range(ITERATIONS)])


def test_constant():
    assert set(sample("constant:100ms").ravel()) == {0.1}


def test_uniform():
    seconds = sample("uniform:80:120ms")
    assert seconds.min() >= 0.08
    assert seconds.max() <= 0.12
    assert seconds.mean() == pytest.approx(0.1, rel=0.01)
    assert seconds.std() == pytest.approx(0.04 / np.sqrt(12), rel=0.05)


def test_lognormal():
    logs = np.log(sample("lognormal:100ms:0.3"))
    assert np.median(logs) == pytest.approx(np.log(0.1), abs=0.02)
    assert logs.std() == pytest.approx(0.3, rel=0.05)


def test_six_times_as_long_with_probability_one_in_n():
    seconds = sample("constant:100ms+random6x")
    assert sorted(set(seconds.ravel().round(9))) == [0.1, 0.6]
    assert (seconds > 0.5).sum(axis=1).mean() == pytest.approx(1, abs=5 / np.sqrt(ITERATIONS))


def test_a_fifth_of_the_ranks_is_twice_as_slow():
    seconds, alone = sample("uniform:80:120ms+slow:0.2:2x"), sample("uniform:80:120ms")
    np.testing.assert_array_equal(seconds[:, :4], alone[:, :4])
    np.testing.assert_array_equal(seconds[:, 4], 2 * alone[:, 4])


def test_a_pure_function_of_seed_rank_and_iteration():
    one, other = parse_pace("lognormal:1s:1", 3), parse_pace("lognormal:1s:1", 3)
    assert one == other
    forwards = [one.seconds(2, RANKS, i) for i in range(10)]
    assert forwards == [other.seconds(2, RANKS, i) for i in reversed(range(10))][::-1]
    assert len({*forwards, one.seconds(3, RANKS, 0), parse_pace("lognormal:1s:1", 4).seconds(2, RANKS, 0)}) == 12


def test_delays_are_drawn_apart_from_the_pace():
    both, alone = sample("uniform:0:1s+uniform:0:1s"), sample("uniform:0:1s")
    assert abs(np.corrcoef((both - alone).ravel(), alone.ravel())[0, 1]) < 5 / np.sqrt(alone.size)


def test_recorded(tmp_path):
    file = tmp_path / "paces.json"
    file.write_text(json.dumps([[0.1, 0.2, 0.3], [1]]))
    pace = parse_pace(f"trace:{file}")
    assert [pace.seconds(0, 3, i) for i in range(4)] == [0.1, 0.2, 0.3, 0.1]
    assert [pace.seconds(rank, 3, 1) for rank in range(3)] == [0.2, 1.0, 0.2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected a list with a list of seconds for every rank"),
        ("[]", "expected a list with a list"),
        ("[[0.1], []]", "expected a list with a list"),
        ("[[0.1], 3]", "expected a list with a list"),
        ("[[0.1, -1]]", "expected seconds from 0 to 1e.06, got -1 in iteration 1 of rank 0"),
        ("[[0.1], [NaN]]", "got nan in iteration 0 of rank 1"),
        ("[[Infinity]]", "got inf"),
        ("[[1e7]]", "got 10000000.0"),
        ("[[true]]", "got True"),
        ('[["1"]]', "got '1'"),
        ("[[0.1]", "cannot be read"),
        ("[" * 10**5, "cannot be read"),
    ],
)
def test_a_file_is_checked(tmp_path, text, message):
    file = tmp_path / "paces.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_pace(f"trace:{file}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pace '': expected constant:TIME, uniform:LOW:HIGH, .*, as in constant:100ms"),
        ("constant", "pace 'constant': expected constant:TIME"),
        ("constant:5", "pace 'constant:5': expected a unit after the time .us, ms, s., got '5', as in constant:100ms"),
        ("uniform:5ms", "expected two times, the shorter first, got 1, as in uniform:80:120ms"),
        ("lognormal:5ms:x", "expected a median and a deviation, as in lognormal:100ms:0.3"),
        ("trace:/nowhere", "/nowhere cannot be read"),
        ("constant:5ms+fast", "delay 'fast': expected none"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(ValueError, match=message):
        parse_pace(text)
