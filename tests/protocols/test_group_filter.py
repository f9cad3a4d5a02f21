"""Who forms a group: the oldest signals, unless some workers would never meet others."""

import itertools

import pytest

from spardl.protocols.preduce.group_filter import GroupFilter, Hold
from spardl.protocols.preduce.group_size import GroupSize
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.notes import Signal
from spardl.protocols.preduce.signal_queue import SignalQueue
from spardl.protocols.preduce.step_times import StepTimes

SIGNAL = Signal(1, 0, "")


def queue_of(*ranks, now=0.0):
    queue = SignalQueue()
    for rank in ranks:
        queue.add(rank, SIGNAL, now)
    return queue


def steps(times, rank, *seconds, now=0.0):
    """These steps, the last of which ends ``now``; the worker is released then."""
    for taken in seconds:
        times.release(rank, now - taken)
        times.signal(rank, now)
    times.release(rank, now)


@pytest.fixture
def world():
    history, times = GroupHistory(8, 12), StepTimes(8)
    return history, times, GroupFilter(history, times)


def test_the_oldest_signals_form_a_group(world):
    _, _, chosen_by = world
    assert chosen_by.choose(queue_of(3, 1, 2, 0), 2, 0.0) == [3, 1]


def test_while_all_are_connected_the_oldest_do(world):
    history, _, chosen_by = world
    for members in [(0, 1), (1, 2), (2, 3)]:
        history.add(members)
    assert chosen_by.choose(queue_of(1, 0, 3), 2, 0.0) == [1, 0]


def test_signals_of_different_parts_are_taken_together_and_the_oldest_is_among_them(world):
    history, _, chosen_by = world
    for members in [(0, 1), (2, 3), (4, 5)]:
        history.add(members)
    assert chosen_by.choose(queue_of(1, 0, 3, 2, 5), 2, 0.0) == [1, 3]
    assert chosen_by.choose(queue_of(1, 0, 3, 2, 5), 3, 0.0) == [1, 3, 5]
    assert chosen_by.choose(queue_of(1, 0, 3, 2, 5), 4, 0.0) == [1, 3, 5, 0]


def test_of_one_part_they_wait_for_another_that_is_due(world):
    history, times, chosen_by = world
    for members in [(0, 1), (2, 3)]:
        history.add(members)
    steps(times, 2, 1.0, 1.0, 1.2, now=10.0)
    steps(times, 3, 1.0, 1.0, 1.0, now=10.0)
    assert chosen_by.choose(queue_of(0, 1), 2, 10.5) == Hold(11.0)
    assert chosen_by.choose(queue_of(0, 1, 3), 2, 10.9) == [0, 3]


def test_not_for_one_that_is_overdue(world):
    history, times, chosen_by = world
    for members in [(0, 1), (2, 3)]:
        history.add(members)
    for rank in (2, 3):
        steps(times, rank, 1.0, 1.0, 1.0, now=10.0)
    assert chosen_by.choose(queue_of(0, 1), 2, 11.5) == [0, 1]


def test_not_for_longer_than_a_step(world):
    history, times, chosen_by = world
    for members in [(0, 1), (2, 3)]:
        history.add(members)
    for rank in (0, 1):
        steps(times, rank, 0.1, 0.1, 0.1, now=10.0)
    steps(times, 2, 9.0, 9.0, 9.0, now=10.0)
    assert chosen_by.choose(queue_of(0, 1), 2, 10.2) == Hold(pytest.approx(10.3))
    assert chosen_by.choose(queue_of(0, 1), 2, 10.25) == Hold(pytest.approx(10.3))
    assert chosen_by.choose(queue_of(0, 1), 2, 10.31) == [0, 1]
    assert chosen_by.choose(queue_of(0, 1), 2, 10.4) == Hold(pytest.approx(10.5))  # the next group waits anew


def test_not_for_one_whose_steps_nobody_knows(world):
    history, _, chosen_by = world
    for members in [(0, 1), (2, 3)]:
        history.add(members)
    assert chosen_by.choose(queue_of(0, 1), 2, 1.0) == [0, 1]


def test_without_the_filter_the_oldest_always_do():
    history, times = GroupHistory(4, 9), StepTimes(4)
    for members in [(0, 1), (2, 3)]:
        history.add(members)
    assert GroupFilter(history, times, active=False).choose(queue_of(0, 1, 2, 3), 2, 0.0) == [0, 1]


def test_a_median_absolute_deviation_of_slack():
    times = StepTimes(2)
    steps(times, 0, 1.0, 1.2, 1.4, 0.9, 1.1, now=5.0)
    assert times.due(0) == pytest.approx(5.0 + 1.1 + 3 * 0.1)
    assert times.due(1) is None
    times.signal(0, 5.5)
    assert times.due(0) is None  # it is not computing


def test_the_queue_keeps_places_of_what_came_to_nothing():
    queue = queue_of(4, 2, 7)
    taken = queue.take([2, 7])
    queue.add(1, SIGNAL, 0.0)
    queue.put_back(taken)
    assert [one.rank for one in queue] == [4, 2, 7, 1]
    queue.set_aside(2)
    assert [one.rank for one in queue] == [4, 7, 1]
    queue.come_back(2)
    queue.come_back(5)
    assert [one.rank for one in queue] == [4, 2, 7, 1]


@pytest.mark.parametrize(
    ("seconds", "size"),
    [
        ([1.0] * 8, 8),  # as good as a step together
        ([1.0] * 4 + [2.0] * 4, 4),
        ([1.0, 1.0, 1.0, 9.0], 3),
        ([1.0, 2.0, 4.0, 8.0], 2),
        ([1.0, 1.1, 1.2, 1.25], 3),  # the fourth is a quarter of 1.15 later
    ],
)
def test_as_many_as_are_ready_within_a_fifth_of_a_step(seconds, size):
    times = StepTimes(len(seconds))
    for rank, taken in enumerate(seconds):
        steps(times, rank, taken, taken)
    assert times.best_group(range(len(seconds))) == size


def test_before_anything_is_known_half_of_the_ranks():
    times = StepTimes(8)
    size = GroupSize("auto", 8, times)
    assert size.now == 4
    assert not size.look_again(15, range(8))
    for rank in range(8):
        steps(times, rank, 1.0)
    assert size.look_again(16, range(8))
    assert size.now == 8
    for rank in itertools.islice(itertools.count(), 7):
        steps(times, rank, *[5.0] * 16)
    assert not size.look_again(17, range(8))  # not before there were many more
    fixed = GroupSize(3, 8, times)
    assert not fixed.look_again(10**6, range(8))
    assert fixed.now == 3
