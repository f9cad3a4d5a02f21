"""Sparse gossip: copies stay the same to the bit, damaged ones are found and sent anew, and models agree."""

import numpy as np
import pytest

from spardl import WireError, kernels
from spardl.graphs import graph
from spardl.protocols.hop.program import hop
from spardl.protocols.hop.settings import Settings
from spardl.protocols.hop.sparse_part import DIGEST_EVERY, SparsePart
from spardl.protocols.hop.training import Training
from spardl.protocols.models import Model
from spardl.runtime.loopback import Loopback
from spardl.wire import Codec

SIZE, SETTINGS = 60, Settings(order="serial")


def part_for(me, on, k, gamma, example, dtype=np.float64):
    chosen = kernels.load("numpy")
    return SparsePart(np.zeros(SIZE, dtype), example, k, gamma, on.inward[me], chosen, Codec(chosen))


def run(on, steps, *, k=3, gamma=0.1, step=None, damage=None, rest=0, seed=0):
    """Parts and models in the end. ``step(me, number, model)``: what training adds; ``damage(parts, number)``."""
    parts, models, programs = [], {}, []

    def train(me, training):
        rng = np.random.default_rng(me)
        values = np.concatenate([rng.standard_normal(SIZE), np.full(rest, float(me))])
        yield from training.begin(Model(values.copy(), len(values), np.array([me])))
        for number in range(steps):
            if damage is not None:
                damage(parts, me, number)
            if step is not None:
                values[:SIZE] += step(me, number, values[:SIZE])
            blended = yield from training.blend(Model(values.copy(), len(values), np.array([me])))
            values = blended.values.copy()
        models[me] = (values, blended.counts)
        yield from training.close()

    for me in range(on.ranks):
        example = Model(np.zeros(SIZE + rest), SIZE + rest, np.zeros(1, np.int64))
        parts.append(part_for(me, on, k, gamma, example))
        training = Training(me, limit=2e3, grace=5.0)
        programs.append(hop(me, on, parts[me], SETTINGS, training=train(me, training)))
    Loopback(programs, seed=seed).run()
    return parts, [models[me] for me in range(on.ranks)]


def assert_same_copies(parts, on):
    for me, part in enumerate(parts):
        for holder in on.outward[me]:
            assert parts[holder]._copies[me].tobytes() == part._copy.tobytes()


@pytest.mark.parametrize("name", ["ring", "ring-based", "exponential"])
def test_copies_are_the_same_to_the_bit_after_many_rounds(name):
    on = graph(name, 6)
    parts, _ = run(on, 1000, step=lambda me, number, x: 0.01 * np.sin(number + me + np.arange(SIZE)))
    assert_same_copies(parts, on)


def test_models_agree_and_their_sum_is_kept():
    on = graph("ring-based", 8)
    starts = np.array([np.random.default_rng(me).standard_normal(SIZE) for me in range(8)])
    _, models = run(on, 1500, k=6, gamma=0.1)
    ends = np.array([values for values, _ in models])
    np.testing.assert_allclose(ends.sum(0), starts.sum(0), atol=1e-9)
    assert np.abs(ends - ends.mean(0)).max() < 1e-3 * np.abs(starts - starts.mean(0)).max()


def test_what_is_owed_is_what_has_not_been_sent():
    """x − x̂ after a message is what was too small for it."""
    on = graph("ring", 3)
    example = Model(np.zeros(SIZE), SIZE, np.zeros(0, np.int64))
    part = part_for(0, on, 3, 0.1, example)
    values = np.random.default_rng(0).standard_normal(SIZE)
    part.write(Model(values, SIZE, np.zeros(0, np.int64)))
    owed = values - part._copy
    largest = np.argsort(-np.abs(values))[:3]
    assert not owed[largest].any()
    np.testing.assert_array_equal(np.delete(owed, largest), np.delete(values, largest))


def test_a_damaged_copy_is_found_and_sent_anew():
    on = graph("ring", 4)

    def damage(parts, me, number):
        if me == 2 and number == 5:
            parts[2]._copies[1][7] += 1

    step = lambda me, number, x: 0.01 * np.cos(number + me + np.arange(SIZE))  # noqa: E731
    damaged, _ = run(on, DIGEST_EVERY - 3, step=step, damage=damage)
    with pytest.raises(AssertionError):
        assert_same_copies(damaged, on)
    mended, _ = run(on, DIGEST_EVERY + 12, step=step, damage=damage)
    assert_same_copies(mended, on)


def test_buffers_and_counts_travel_whole():
    _, models = run(graph("complete", 4), 30, rest=2)
    for values, counts in models:
        np.testing.assert_allclose(values[SIZE:], 1.5, atol=1e-6)
        assert counts.tolist() == [3]


@pytest.mark.parametrize("cut", [0, 5, 30, -1])
def test_damaged_messages_are_refused(cut):
    on = graph("ring", 3)
    example = Model(np.zeros(SIZE), SIZE, np.zeros(0, np.int64))
    writer, reader = (part_for(me, on, 3, 0.1, example) for me in (0, 1))
    message = writer.write(Model(np.random.default_rng(0).standard_normal(SIZE), SIZE, np.zeros(0, np.int64)))
    reader.read(message, 0)
    with pytest.raises(WireError):
        reader.read(message[:cut], 0)
    for place in range(4):
        wrong = message.copy()
        wrong[place] ^= 0xFF
        with pytest.raises(WireError):
            reader.read(wrong, 0)
    with pytest.raises(WireError):
        reader.read(None, 0)
