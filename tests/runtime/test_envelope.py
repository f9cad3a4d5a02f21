"""Every message is in an envelope; whatever happens to it on the way, it is refused or it is what was sent."""

import numpy as np
import pytest

from spardl import Exchange, OutOfStep, WireError
from spardl.effects import FRONT_BYTES, Draft
from spardl.kernels import memory
from spardl.runtime.envelope import Stamp, checked_stamp, sealed, stamp_of
from spardl.runtime.loopback import Loopback

STAMP = Stamp(3, 70_000)


def seal(payload, stamp=STAMP):
    return sealed(payload, stamp, memory.HOST.messages)


def test_what_was_put_in_comes_out():
    for payload in (np.arange(5.0), [np.arange(3, dtype=np.uint8), np.arange(4, dtype=np.uint8)], np.empty(0)):
        message = seal(payload)
        assert checked_stamp(message, 1) == stamp_of(message) == STAMP
        expected = b"".join(part.tobytes() for part in (payload if isinstance(payload, list) else [payload]))
        assert message[FRONT_BYTES:].tobytes() == expected


def test_a_draft_is_not_copied():
    paper = np.arange(FRONT_BYTES + 8, dtype=np.uint8)
    message = seal(Draft(paper))
    assert message is paper
    assert checked_stamp(message, 1) == STAMP
    assert message[FRONT_BYTES:].tolist() == list(range(FRONT_BYTES, FRONT_BYTES + 8))


@pytest.mark.parametrize("bit", range(8 * (FRONT_BYTES + 16)))
def test_every_flipped_bit_is_noticed(bit):
    message = seal(np.arange(2.0))
    message[bit // 8] ^= 1 << bit % 8
    with pytest.raises((WireError, OutOfStep), match=r"from rank 5 was damaged|spardl did not send"):
        checked_stamp(message, 5)


def test_a_checksum_that_was_lost_is_noticed():
    message = seal(np.arange(2.0))
    message[8:20] = 0
    with pytest.raises(WireError, match="from rank 5 was damaged"):
        checked_stamp(message, 5)


@pytest.mark.parametrize("length", [0, 3, FRONT_BYTES - 1, FRONT_BYTES, FRONT_BYTES + 15])
def test_a_message_that_was_cut_is_noticed(length):
    with pytest.raises((WireError, OutOfStep)):
        checked_stamp(seal(np.arange(2.0))[:length], 5)


def test_loopback_refuses_what_was_damaged():
    def shift(rank):
        arrived = yield Exchange((rank + 1) % 3, np.full(2, float(rank)), (rank - 1) % 3)
        return arrived.view(float).tolist()

    def damage(sender, receiver, message):
        if (sender, receiver) == (1, 2):
            message[-1] ^= 64

    with pytest.raises(WireError, match="from rank 1 was damaged"):
        Loopback([shift(rank) for rank in range(3)], damage=damage).run()
    assert Loopback([shift(rank) for rank in range(3)]).run() == [[2.0] * 2, [0.0] * 2, [1.0] * 2]
