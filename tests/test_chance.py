"""Numbers by name: the same everywhere, spread evenly, unrelated between names."""

import numpy as np

from spardl import chance


def test_the_same_on_every_machine_and_for_every_kind_of_integer():
    assert chance.fraction("test", 1, 2) == chance.fraction("test", np.int32(1), np.uint64(2))
    assert [chance.below(1000, "test", i) for i in range(5)] == [920, 559, 212, 844, 391]  # as the first time


def test_another_purpose_or_key_is_another_number():
    names = [("a", 1, 23), ("a", 12, 3), ("a", 1, 2, 3), ("a", 123), ("b", 1, 23), ("a", -1, 23), ("a", 1, 2**70)]
    assert len({chance.fraction(*name) for name in names}) == len(names)


def test_spread_evenly():
    rounds = 20_000
    draws = np.array([chance.fraction("test", i) for i in range(rounds)])
    assert ((draws >= 0) & (draws < 1)).all()
    counts = np.histogram(draws, bins=10, range=(0, 1))[0]
    assert np.abs(counts - rounds / 10).max() < 5 * np.sqrt(rounds / 10)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5 / np.sqrt(rounds)


def test_below_stays_below():
    assert {chance.below(3, "test", i) for i in range(100)} == {0, 1, 2}
    assert chance.below(1, "test", 7) == 0
