"""Messages that are whole, but not of the block that is expected: no collective adds them up."""

import struct

import numpy as np
import pytest
from configurations import Setup
from test_rivals import Race

from spardl import WireError
from spardl.effects import FRONT_BYTES
from spardl.runtime import envelope
from spardl.runtime.loopback import Loopback

N, K = 600, 60
COLLECTIVES = {
    "spardl": Setup(4, 1, "r", N, K, "float32", "auto", 1, None),
    "spardl, R-SAG": Setup(4, 4, "r", N, K, "float32", "auto", 1, None),
    "spardl, B-SAG": Setup(3, 3, "b", N, K, "float32", "auto", 1, None),
} | {name: Race(name, 4, N, K) for name in ("topk_a", "topk_dsa", "gtopk", "oktopk")}
MAGIC, BASE, LENGTH, DIGEST = b"SPv2", 24, 32, slice(8, 16)


class Elsewhere:
    """Changes the base or the length in the first frame of the n-th message that has one, and makes all checksums fit
    or go away.
    """

    def __init__(self, nth, field, add):
        self._nth, self._field, self._add = nth, field, add
        self.changed = False

    def __call__(self, _sender, _receiver, message):
        if (place := message.tobytes().find(MAGIC)) < 0:
            return
        self._nth -= 1
        if self._nth != -1:
            return
        frame = message[place:]
        frame[DIGEST] = np.frombuffer(b"unsigned", np.uint8)
        frame[self._field : self._field + 8].view(np.int64)[0] += self._add
        if place > FRONT_BYTES:  # a message of frames
            message[FRONT_BYTES : FRONT_BYTES + 8] = np.frombuffer(b"unsigned", np.uint8)
        struct.pack_into("<Q", message, 8, envelope._checksum(message, envelope.stamp_of(message)))
        self.changed = True


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(("field", "add"), [(BASE, N + 50), (BASE, -5000), (LENGTH, 10 * N), (BASE, 2**40)])
def test_a_frame_of_another_block_is_refused(name, field, add):
    setup = COLLECTIVES[name]
    grads = list(np.random.default_rng(1).standard_normal((setup.ranks, N)).astype(np.float32))
    for nth in range(30):
        reducers = setup.reducers(["native"]) if isinstance(setup, Setup) else setup.reducers()
        damage = Elsewhere(nth, field, add)
        run = Loopback([r.reduce(g) for r, g in zip(reducers, grads, strict=True)], damage=damage)
        try:
            run.run()
        except WireError:
            assert damage.changed
            continue
        assert not damage.changed
        assert nth >= setup.ranks  # all messages with frames were tried
        return
