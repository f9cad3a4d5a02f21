"""Whose turn it is, who has had enough, and what is told in between."""

import pytest

from spardl.bench import timing
from spardl.bench.timing import Candidate, goes_on, interleaved


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when told."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    return spend


def named(name, log, clock, seconds=1.0):
    def run():
        log.append(name)
        clock(seconds)

    return Candidate(run, prepare=lambda: log.append(f"prepare {name}"))


def test_candidates_take_turns_and_preparing_is_not_timed(clock):
    log, told = [], []
    a, b = named("a", log, clock, 1), named("b", log, clock, 2)
    seconds = interleaved(
        [a, b], 2, 1, before_each=lambda: clock(100), tell=lambda done, total: told.append((done, total))
    )
    assert seconds == [[1, 1], [2, 2]]
    assert log == ["prepare a", "prepare b", "a", "b"] * 3
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_whoever_has_used_its_time_leaves(clock):
    log = []
    fast, slow = named("fast", log, clock, 1), named("slow", log, clock, 10)
    seconds = interleaved([fast, slow], 8, 4, max_seconds=5)
    assert seconds == [[1] * 5, [10] * 2]
    assert log.count("fast") == 4 + 5
    assert log.count("slow") == 1 + 2
    assert log.count("prepare slow") == 3


@pytest.mark.parametrize(
    ("seconds", "goes"),
    [([], True), ([99], True), ([1, 1], True), ([5, 5], False), ([4, 5], True), ([1] * 6, False)],
)
def test_at_least_two_at_most_six_in_ten_seconds(seconds, goes):
    assert goes_on(seconds, most=6, least=2, max_seconds=10) == goes


def test_no_more_than_asked_for():
    assert not goes_on([], most=0, least=1, max_seconds=10)
    assert not goes_on([1], most=1, least=2, max_seconds=10)


def test_one_decision_for_all(clock):
    """Another rank, that is slower, would have stopped; rank 0 decides."""
    decisions = iter([[False], [True], [True], [True], [False]])  # the first of them about warming up
    seconds = interleaved([named("a", [], clock, 100)], 9, 0, max_seconds=1, agree=lambda mine: next(decisions))
    assert seconds == [[100] * 3]


def test_ratios_and_times():
    assert timing.times([0.002, 0.004, 0.001]) == {"min_ms": 1.0, "median_ms": 2.0}
    assert timing.ratios([2, 4, 6], [1, 2, 4]) == {"ratio": 2.0, "ratio_of_minima": 2.0}
