"""RNA's protocol against chance: whoever is ready when, stopped or suspected, no gradient is lost or counted twice."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sync.world import World

from spardl.collectives.dense_ring import dense_ring
from spardl.sync.among import among
from spardl.sync.policies import All, Majority, PowerOfChoices, Solo

N = 7


class Box:
    """A rank's training, deposit after deposit; ``log`` has the rounds' results."""

    def __init__(self, gradients, shifts=0):
        self.coming = list(gradients)
        self.shifts_coming = [np.full(N + 1, number, float) for number in range(shifts)]
        self.shift = None
        self.waiting = []
        self.taken = 0
        self.log = {}
        self.contributions = []  # rounds

    can_deposit = property(lambda self: bool(self.coming))
    ready = property(lambda self: bool(self.waiting))
    closed = property(lambda self: not self.coming)

    can_offer = property(lambda self: bool(self.shifts_coming) and self.shift is None)

    def offer_next(self):
        self.shift = self.shifts_coming.pop(0)

    def deposit_next(self):
        self.waiting.append(self.coming.pop(0))

    def take(self, round):
        assert round == len(self.log)
        self.taken = len(self.waiting)
        return np.sum(self.waiting, axis=0)

    def publish(self, round, result, terms, contributed):
        assert round == len(self.log)
        self.log[round] = result
        if result is self.shift:
            assert not contributed
            self.shift = None
        if contributed:
            self.contributions.append(round)
            del self.waiting[: self.taken]
            self.taken = 0


class Part:
    """Dense sums; counts what was reduced and taken back."""

    def __init__(self, rank):
        self.rank = rank
        self.reduced = self.undone = 0

    def contribute(self, rank, go, contribution):
        out = np.empty_like(contribution)
        members = go.members
        yield from among(members, dense_ring(len(members), members.index(rank), contribution, out))
        self.reduced += 1
        return out

    def undo(self):
        self.undone += 1


def make(ranks, counts, rng, shifts=0):
    """Shifts come to rank 0."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    gradients = [numbers.integers(-9, 10, (count, N)).astype(np.float64) for count in counts]
    boxes = [Box(grads, shifts if rank == 0 else 0) for rank, grads in enumerate(gradients)]
    deposited = sum((sum(box.coming, np.zeros(N)) for box in boxes), np.zeros(N))
    return boxes, [Part(rank) for rank in range(ranks)], deposited


def assert_right(world, boxes, parts, deposited):
    rounds = {machine.result for machine in world.workers}
    assert rounds == {world.scheduler.result}
    (rounds,) = rounds
    for box in boxes:
        assert sorted(box.log) == list(range(rounds))
        assert not box.waiting
        for number, result in box.log.items():
            assert result.tobytes() == boxes[0].log[number].tobytes()
    results = [boxes[0].log[number] for number in range(rounds)]
    applied = sum((result for result in results if len(result) == N), np.zeros(N))
    np.testing.assert_array_equal(applied, deposited)
    shifted = [result[0] for result in results if len(result) > N]
    assert shifted == list(range(len(shifted)))  # in order, once each; the last may come too late
    for box, part in zip(boxes, parts, strict=True):
        assert part.reduced - part.undone == len(box.contributions)


policies = st.one_of(
    st.builds(PowerOfChoices, st.integers(1, 4), st.integers(0, 99)),
    st.builds(Majority),
    st.builds(Solo),
    st.builds(All),
)


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    policy=policies,
    seed=st.integers(0, 2**32 - 1),
    stops=st.integers(0, 6),
    false_alarms=st.integers(0, 6),
    shifts=st.integers(0, 3),
)
@settings(max_examples=600)
def test_every_gradient_counts_once_and_all_ranks_agree(counts, policy, seed, stops, false_alarms, shifts):
    rng = random.Random(seed)
    boxes, parts, deposited = make(len(counts), counts, rng, shifts)
    world = World(boxes, parts, policy, rng, stops, false_alarms)
    world.run()
    assert_right(world, boxes, parts, deposited)


@pytest.mark.parametrize("ranks", range(1, 13))
def test_all_takes_everyone_in_every_round(ranks):
    """Bulk-synchronous: as many rounds as gradients, and all contribute to each."""
    rng = random.Random(ranks)
    boxes, parts, deposited = make(ranks, [4] * ranks, rng)
    world = World(boxes, parts, All(), rng)
    world.run()
    assert_right(world, boxes, parts, deposited)


def test_suspicion_and_stopping_do_happen():
    """So that the property above means something."""
    called_off = undone = shifted = 0
    for seed in range(60):
        rng = random.Random(seed)
        boxes, parts, deposited = make(5, [5] * 5, rng, shifts=3)
        world = World(boxes, parts, PowerOfChoices(2), rng, stops=6, false_alarms=6)
        world.run()
        assert_right(world, boxes, parts, deposited)
        called_off += world.called_off
        shifted += sum(len(result) > N for result in boxes[3].log.values())
        undone += sum(part.undone for part in parts)
    assert called_off > 5
    assert undone > 5
    assert shifted > 60
