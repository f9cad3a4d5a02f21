"""The box that training uses, in the world of chance: no gradient is reduced later than the staleness bound allows."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sync.world import World

from spardl.sync.box import SummingBox, WeightingBox
from spardl.sync.parts import DensePart
from spardl.sync.policies import All, Majority, PowerOfChoices, Solo

N = 5


class _Trains:
    """Training as it is: applies what has come, computes, and deposits unless it is too far ahead."""

    def start(self, steps, rng):
        self.left, self.deposited, self.version = steps, np.zeros(N), 0
        self.numbers = np.random.default_rng(rng.randrange(2**32))
        self.begun = None  # the version that the gradient under way is computed with
        self.slowness = rng.choice([0, 5, 80])  # in moves of the world
        self.computing = 0
        return self

    can_offer = False
    closed = property(lambda self: self.left == 0)
    can_deposit = property(lambda self: self.left > 0 and len(self._waiting) <= self._most_ahead)

    def deposit_next(self):
        """Or goes on computing, so that rounds can pass in between."""
        if self.begun is None:
            self.version += len(self.collect())
            self.begun, self.computing = self.version, self.slowness
        if self.computing > 0:
            self.computing -= 1
            return
        grad = self.numbers.integers(-9, 10, N).astype(float)
        self.deposited += grad
        self.left -= 1
        self.deposit(grad, self.begun)
        self.begun = None


class Weighting(_Trains, WeightingBox):
    pass


class Summing(_Trains, SummingBox):
    pass


def play(kind, counts, policy, seed, staleness, stops, false_alarms):
    rng = random.Random(seed)
    boxes = [kind(staleness, 1.0).start(steps, rng) for steps in counts]
    parts = [DensePart(N, "float64") for _ in counts]
    World(boxes, parts, policy, rng, stops, false_alarms).run()
    assert len({tuple(result.vector.values.tobytes() for result in box.log.values()) for box in boxes}) == 1
    return boxes


chances = {
    "counts": st.lists(st.integers(0, 8), min_size=1, max_size=12),
    "policy": st.sampled_from([PowerOfChoices(2), PowerOfChoices(1, 7), Majority(), Solo(), All()]),
    "seed": st.integers(0, 2**32 - 1),
    "staleness": st.integers(1, 4),
    "stops": st.integers(0, 4),
    "false_alarms": st.integers(0, 4),
}


@given(**chances)
@settings(max_examples=120)
def test_what_is_too_old_is_dropped_and_counted(counts, **chance):
    boxes = play(Weighting, counts, **chance)
    for steps, box in zip(counts, boxes, strict=True):
        assert max(box.metrics.staleness, default=0) <= chance["staleness"]
        assert sum(box.metrics.staleness.values()) + box.metrics.dropped == steps


@given(**chances)
@settings(max_examples=120)
def test_summed_gradients_are_never_dropped(counts, **chance):
    boxes = play(Summing, counts, **chance)
    for steps, box in zip(counts, boxes, strict=True):
        assert sum(box.metrics.staleness.values()) == steps
        assert box.metrics.dropped == 0
    applied = sum((result.vector.values for result in boxes[0].log.values()), np.zeros(N))
    np.testing.assert_array_equal(applied, sum((box.deposited for box in boxes), np.zeros(N)))


def test_drops_do_happen():
    dropped = sum(
        box.metrics.dropped
        for seed in range(40)
        for box in play(Weighting, [8] * 6, PowerOfChoices(2), seed, staleness=1, stops=0, false_alarms=0)
    )
    assert dropped > 40
