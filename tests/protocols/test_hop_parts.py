"""Models as Hop and gossip send and blend them."""

import numpy as np
import pytest

from spardl import WireError
from spardl.protocols.hop.intake import Blend
from spardl.protocols.hop.parts import DensePart
from spardl.protocols.hop.update_queue import Tagged
from spardl.protocols.models import Model


def model(*values, counts=(0,)):
    return Model(np.array(values, np.float32), len(values), np.array(counts, np.int64))


@pytest.fixture
def part():
    return DensePart(model(0, 0, 0))


def test_a_model_comes_as_it_was_sent(part):
    sent = model(1.5, -2, 3, counts=(2**60,))
    message = part.write(sent)
    sent.values[:] = 0  # it goes on changing
    read = part.read(message, 1)
    assert read.values.tolist() == [1.5, -2, 3]
    assert read.counts.tolist() == [2**60]


def test_serial_order_blends_what_the_step_has_made(part):
    blend = Blend(0.5, [(0.25, Tagged(1, 0, model(4, 0, 0, counts=(7,)))), (0.25, Tagged(2, 0, model(0, 8, 0)))])
    assert part.blend(model(2, 2, 2, counts=(3,)), blend).values.tolist() == [2, 3, 1]
    assert part.blend(model(2, 2, 2, counts=(3,)), blend).counts.tolist() == [7]


def test_parallel_order_adds_what_the_step_has_changed(part):
    before, after = model(2, 2, 2), model(3, 2, 1)
    blend = Blend(0.5, [(0.5, Tagged(1, 0, model(4, 0, 2)))])
    assert part.blend(after, blend, before).values.tolist() == [3 + 1, 1 + 0, 2 - 1]


def test_the_last_result_stays_while_the_next_is_made(part):
    first = part.blend(model(1, 1, 1), Blend(1.0, []))
    second = part.blend(model(2, 2, 2), Blend(1.0, []), first)
    assert first.values.tolist() == [1, 1, 1]
    assert second.values.tolist() == [2, 2, 2]


def test_gossip_goes_half_of_the_way(part):
    mine, theirs = model(0, 4, 2), model(2, 0, 2, counts=(5,))
    moved = part.moved(mine, part.half_way(mine, theirs))
    assert moved.values.tolist() == [1, 2, 2]
    assert moved.counts.tolist() == [5]
    back = part.moved(theirs, part.half_way(theirs, mine))
    assert back.values.tolist() == [1, 2, 2]


@pytest.mark.parametrize("message", [None, np.zeros(0, np.uint8), np.zeros(19, np.uint8), np.zeros(21, np.uint8)])
def test_bytes_that_are_no_model_are_refused(part, message):
    with pytest.raises(WireError, match="from rank 4, expected a model of 20"):
        part.read(message, 4)
