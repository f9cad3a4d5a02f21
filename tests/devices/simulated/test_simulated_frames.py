"""Damaged frames on a (simulated) GPU: the same is made of them as on the host, in either memory."""

import numpy as np
import pytest
from fuzz.damage import KINDS
from test_hostile_frames import FIELDS, NUMBERS, expect_sound, unsigned, with_field
from test_wire import random_block

from spardl import WireError, kernels
from spardl.kernels.cuda.backend import CudaKernels
from spardl.kernels.cuda.simulated import SimulatedNamespace
from spardl.wire import Codec, join


class Receiver:
    """Decodes what has arrived in the device's memory, or in the host's, and fetches what comes out."""

    def __init__(self, direct):
        self._on, self._direct = SimulatedNamespace(threads=8), direct
        self.kernels = CudaKernels(self._on, direct)
        self._codec = Codec(self.kernels)

    def received(self, frame):
        return self.kernels.arrays.messages.opened(self._on.to_device(frame)) if self._direct else frame

    def decode(self, frame, wide, block):
        got = self._codec.decode(self.received(frame), wide, block)
        indices, values = self.kernels.arrays.to_host(got.indices, got.values)
        return got._replace(indices=indices, values=values)

    def decode_message(self, message, expected):
        return self._codec.decode_message(self.received(message), expected, False)


@pytest.fixture(params=[False, True], ids=["host's memory", "device's memory"])
def receiver(request):
    return Receiver(request.param)


@pytest.fixture(params=["raw", "packed"])
def frame(request):
    codec = Codec(kernels.load("native"), request.param)
    return codec.encode(*random_block(np.random.default_rng(2), 7, 500, 25), 7, 500)


def same_as_native(receiver, frame, wide=False):
    answers = [expect_sound(each, frame, wide, (7, 500)) for each in (Codec(kernels.load("native")), receiver)]
    told = [None if got is None else (got.indices.tobytes(), got.values.tobytes()) for got in answers]
    assert told[0] == told[1]


@pytest.mark.parametrize("wide", [False, True])
def test_headers_that_spardl_does_not_write(receiver, frame, wide):
    for field, place in FIELDS.items():
        for number in (0, 1, 2, 3, 57, 58, 255) if place < 8 else NUMBERS:
            same_as_native(receiver, with_field(frame, field, number), wide)


@pytest.mark.parametrize("kind", KINDS)
def test_damage(receiver, frame, kind):
    rng = np.random.default_rng(0)
    for _ in range(25):
        damaged = KINDS[kind](rng, frame.copy())
        if len(damaged) >= 16:
            damaged = unsigned(damaged)
        same_as_native(receiver, damaged)


def test_a_block_that_was_not_expected(receiver, frame):
    assert len(receiver.decode(unsigned(frame), False, (7, 500)).indices) == 25
    with pytest.raises(WireError, match="expected one of"):
        receiver.decode(unsigned(frame), False, (0, 507))


def test_messages(receiver, frame):
    message = np.concatenate(join([unsigned(frame)] * 2))
    message[:8] = np.frombuffer(b"unsigned", np.uint8)
    assert len(receiver.decode_message(message, 2)) == 2
    backwards = message.copy()
    backwards[16:32].view(np.int64)[:] = [len(frame) + 4, len(frame) - 4]  # which would not begin at a word
    for damaged, expected in ((message[:-8], 2), (message, 1), (message[:20], 2), (backwards, 2), (message, 2**61)):
        with pytest.raises(WireError):
            receiver.decode_message(damaged, expected)


def test_every_flipped_bit_is_told_in_the_host_s_memory(frame):
    receiver = Receiver(direct=False)
    for place in range(0, len(frame), 7):
        damaged = frame.copy()
        damaged[place] ^= 1 << place % 8
        with pytest.raises(WireError):
            receiver.decode(damaged, False, (7, 500))
