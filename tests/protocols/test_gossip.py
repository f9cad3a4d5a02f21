"""Gossip against chance: the sum of all models is kept, disagreement never grows, and nobody waits for ever."""

import random
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spardl.effects import Compute
from spardl.graphs import graph
from spardl.protocols.gossip.notes import WORKER
from spardl.protocols.gossip.training import Training
from spardl.protocols.gossip.worker import Worker
from spardl.protocols.liveness import services
from spardl.runtime.loopback import Loopback
from spardl.runtime.process import Program

seeds = st.integers(0, 2**32 - 1)


class ExactPart:
    """A model is one fraction."""

    def write(self, model):
        return np.frombuffer(str(model).encode(), np.uint8)

    def read(self, array, sender):
        return Fraction(bytes(array).decode())

    def half_way(self, sent, received):
        return (received - sent) / 2

    def moved(self, model, shift):
        return model + shift


@dataclass
class Replica:
    training: Training
    model: Fraction
    moved: Fraction = Fraction(0)
    moves: list = field(default_factory=list)

    def train(self, count, rng, slowness, moves):
        yield from self.training.begin(self.model)
        for _ in range(count):
            for _ in range(slowness):
                yield Compute(0.01)
            move = Fraction(rng.randint(-9, 9)) if moves else Fraction(0)
            self.moved += move
            self.model = yield from self.training.blend(self.model + move)
        last = yield from self.training.close()
        self.model = self.model if last is None else last
        return self


def run(counts, on, seed, *, moves=True, slowness=(0, 1, 5), watch=None):
    rng = random.Random(seed)
    made, programs, workers = [], [], []
    for me, count in enumerate(counts):
        replica = Replica(Training(me, limit=2e3, grace=5.0), Fraction(rng.randint(-99, 99)))
        worker = Worker(me, on, ExactPart(), seed)
        made.append(replica)
        workers.append(worker)
        process = worker.run() if watch is None else watched(worker, workers, watch)
        training = replica.train(count, rng, rng.choice(slowness), moves)
        programs.append(Program({WORKER: process}, services(me, on.ranks), training))
    starts = [replica.model for replica in made]
    Loopback(programs, seed=seed).run()
    return made, starts


def watched(worker, workers, watch):
    process, answer = worker.run(), None
    while True:
        try:
            ask = process.send(answer)
        except StopIteration:
            return
        watch(workers)
        answer = yield ask


@st.composite
def graphs(draw):
    ranks = draw(st.integers(1, 8))
    return graph(draw(st.sampled_from(["ring", "complete", "star"])), ranks)


@given(st.data(), graphs(), seeds)
@settings(max_examples=500)
def test_the_sum_of_all_models_is_kept(data, on, seed):
    """T-AD-1, also where ranks leave when they like."""
    counts = data.draw(st.lists(st.integers(0, 6), min_size=on.ranks, max_size=on.ranks))
    made, starts = run(counts, on, seed)
    assert sum(replica.model for replica in made) == sum(starts) + sum(replica.moved for replica in made)
    for replica, count in zip(made, counts, strict=True):
        assert replica.training.metrics.iterations == count


@pytest.mark.parametrize("ranks", [3, 5])
def test_odd_circles_never_deadlock(ranks):
    """T-AD-2."""
    for seed in range(100):
        made, _ = run([6] * ranks, graph("ring", ranks), seed)
        assert all(replica.training.metrics.iterations == 6 for replica in made)


def test_models_agree_in_the_end():
    made, starts = run([60] * 6, graph("ring", 6), 1, moves=False, slowness=(1,))
    spread = max(replica.model for replica in made) - min(replica.model for replica in made)
    assert spread < (max(starts) - min(starts)) / 100


@pytest.mark.parametrize("seed", range(20))
def test_disagreement_never_grows(seed):
    """Without steps, the sum of squared distances only falls, once both halves of an average are done."""
    seen = []

    def watch(workers):
        models = [worker.model for worker in workers]
        if None not in models and all(worker._asked is None for worker in workers):
            mean = sum(models) / len(models)
            seen.append(sum((model - mean) ** 2 for model in models))

    run([8] * 5, graph("complete", 5), seed, moves=False, slowness=(1, 2), watch=watch)
    assert len(set(seen)) > 1
    assert all(later <= earlier for earlier, later in pairwise(seen))


def test_who_is_busy_is_not_waited_for():
    busy = 0
    for seed in range(20):
        made, _ = run([6] * 4, graph("complete", 4), seed, slowness=(0,))
        busy += sum(replica.training.metrics.busy for replica in made)
        used = sum(replica.training.metrics.used for replica in made)
        # Every average counts on both sides.
        assert used % 2 == 0
    assert busy > 10
