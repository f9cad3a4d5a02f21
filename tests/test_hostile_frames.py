"""Frames that are not what was written: refused by every backend, or read as what they say, but never out of bounds."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_wire import random_block

from spardl import WireError, kernels
from spardl.header import HEADER, Header
from spardl.wire import Codec

UNSIGNED = np.frombuffer(b"unsigned", np.uint8)
FIELDS = {
    "dtype": 4,
    "value_coding": 5,
    "coding": 6,
    "bits": 7,
    "entries": 16,
    "base": 24,
    "length": 32,
    "high_words": 40,
}


@pytest.fixture(params=["raw", "packed"])
def coding(request):
    return request.param


def unsigned(frame):
    """Without its digest, as in a GPU's memory: now all depends on what is checked beside it."""
    frame = frame.copy()
    frame[8:16] = UNSIGNED
    return frame


def with_field(frame, field, value):
    changed = unsigned(frame)
    struct.pack_into("<B" if FIELDS[field] < 8 else "<q", changed, FIELDS[field], value)
    return changed


def test_the_fields_are_where_they_are_changed():
    frame = Codec(kernels.load("numpy")).encode(np.arange(3, 6, dtype=np.int32), np.ones(3, np.float32), 2, 10)
    for field in FIELDS:
        assert getattr(Header(*HEADER.unpack_from(with_field(frame, field, 1))), field) == 1


@pytest.mark.parametrize("values", ["same", "bf16"])
def test_every_damaged_byte_is_told(backend_name, coding, values):
    codec = Codec(kernels.load(backend_name), coding, values)
    frame = codec.encode(*random_block(np.random.default_rng(1), 7, 500, 25), 7, 500)
    for place in range(len(frame)):
        damaged = frame.copy()
        damaged[place] ^= 1 << place % 8
        with pytest.raises(WireError):
            codec.decode(damaged, False)


def test_an_index_beyond_the_block(backend_name):
    """Used by a kernel, it would be a write anywhere."""
    codec = Codec(kernels.load(backend_name), "raw")
    frame = codec.encode(np.array([1, 2], np.int32), np.ones(2, np.float32), 0, 10)
    for bad in (2_000_000_000, 10, -1, 1, 0):
        damaged = unsigned(frame)
        damaged[HEADER.size + 4 : HEADER.size + 8].view(np.int32)[0] = bad
        with pytest.raises(WireError, match="out of order, or beyond its block"):
            codec.decode(damaged, False)


def test_packed_indices_beyond_the_block(backend_name):
    """The last index is exact in 64 bits, even where it would wrap into the block in 32."""
    codec = Codec(kernels.load(backend_name), "packed")
    indices = np.array([1, 2**30, 2**31 - 1], np.int32)
    frame = codec.encode(indices, np.ones(3, np.float32), 0, 2**31)
    for length in (2**31 - 1, 2**30, 2**29):
        with pytest.raises(WireError, match=r"beyond their block|does not write|should have"):
            codec.decode(with_field(frame, "length", length), False)
    with pytest.raises(WireError, match="expected 32-bit indices"):
        codec.decode(with_field(frame, "base", 1), False)
    bits = int(frame[FIELDS["bits"]])
    low, high = kernels.load(backend_name).pack(indices.astype(np.int64) + 2**32, 0, bits)
    with pytest.raises(ValueError, match="beyond their block"):
        kernels.load(backend_name).unpack(low, high, 3, 0, bits, np.int32)


@pytest.mark.parametrize("block", [(5, 20), (0, 25), (0, 19), (-5, 20)])
def test_a_block_that_was_not_expected(backend_name, coding, block):
    codec = Codec(kernels.load(backend_name), coding)
    frame = codec.encode(np.array([6, 9], np.int32), np.ones(2, np.float32), 0, 20)
    assert codec.decode(frame, False, (0, 20)).indices.tolist() == [6, 9]
    with pytest.raises(WireError, match="expected one of"):
        codec.decode(frame, False, block)


NUMBERS = [-(2**63), -5000, -1, 0, 1, 2, 2**20, 2**31, 2**57, 2**61, 2**62, 2**63 - 1]


@pytest.mark.parametrize("field", FIELDS)
def test_headers_that_spardl_does_not_write(backend_name, coding, field):
    """An error in no time, whatever is asked for: 256 GiB were allocated for one of these."""
    codec = Codec(kernels.load(backend_name), coding)
    frame = codec.encode(*random_block(np.random.default_rng(2), 7, 500, 25), 7, 500)
    own = getattr(Header(*HEADER.unpack_from(frame)), field)
    for number in range(256) if FIELDS[field] < 8 else [*NUMBERS, own + 1, own - 1]:
        if number != own:
            for wide in (False, True):
                expect_sound(codec, with_field(frame, field, number), wide, (7, 500))


def expect_sound(codec, frame, wide, block):
    try:
        got = codec.decode(frame, wide, block)
    except WireError:
        return None
    assert len(got.indices) == len(got.values)
    assert np.all(np.diff(got.indices) > 0)
    assert np.all((got.indices >= block[0]) & (got.indices < sum(block)))
    return got


@given(
    coding=st.sampled_from(["raw", "packed"]),
    places=st.lists(st.integers(8, 260), min_size=1, max_size=4),
    change=st.integers(1, 255),
    cut=st.integers(0, 60),
    offset=st.integers(0, 8),
    wide=st.booleans(),
)
def test_whatever_bytes_come_all_backends_make_the_same_of_them(coding, places, change, cut, offset, wide):
    """From any address on, and without a digest."""
    native = Codec(kernels.load("native"), coding)
    frame = native.encode(*random_block(np.random.default_rng(4), 0, 500, 30), 0, 500)
    room = np.zeros(len(frame) + 8, np.uint8)
    damaged = room[offset : offset + len(frame) - cut]
    damaged[:] = frame[: len(damaged)]
    damaged[[place % len(damaged) for place in places]] += np.uint8(change)
    damaged[8:16] = UNSIGNED
    answers = set()
    for name in kernels.BACKENDS:
        got = expect_sound(Codec(kernels.load(name)), damaged, wide, (0, 500))
        answers.add(None if got is None else (got.indices.tobytes(), got.values.tobytes(), got.values.dtype))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("indices", "base", "length"),
    [([3], 5000, 100), ([5, 100], 5, 95), ([4], 5, 95), ([5], 5, 0), ([1, 2, 3], 0, 2), ([1], -3, 9), ([9, 3], 0, 9)],
)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_indices_that_are_elsewhere_are_not_written(backend_name, coding, indices, base, length, index_dtype):
    codec = Codec(kernels.load(backend_name), coding)
    pair = np.array(indices, index_dtype), np.ones(len(indices), np.float32)
    for write in (codec.encode, lambda *block: codec.encode_message([block[:2]], [block[2:]])):
        with pytest.raises(ValueError, match="expected"):
            write(*pair, base, length)


def test_indices_out_of_order_are_not_packed(backend_name):
    """Their gaps would be written before the beginning of the stream, or far behind its end."""
    chosen = kernels.load(backend_name)
    for indices in ([1, 9, 4, 12], [1, 2, 2, 9], [0, 2**30, 5, 2**30 + 9]):
        with pytest.raises(ValueError, match="increasing"):
            chosen.pack(np.array(indices, np.int32), 0, 1)
        with pytest.raises(ValueError, match="increasing"):
            Codec(chosen, "packed").encode(np.array(indices, np.int32), np.ones(4, np.float32), 0, 2**31)


def test_an_index_below_the_base_ends(backend_name):
    """It once kept a process busy for ever, with the GIL held: so it is tried in another."""
    program = (
        "import numpy as np, spardl.kernels as k; from spardl.wire import Codec\n"
        f"codec = Codec(k.load({backend_name!r}))\n"
        "try: codec.encode(np.array([3], np.int32), np.ones(1, np.float32), 5000, 100)\n"
        "except ValueError as error: print('refused:', error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("refused: expected increasing indices from 5000 on"), done.stderr


def test_frames_may_begin_at_any_byte(backend_name, coding):
    codec = Codec(kernels.load(backend_name), coding)
    indices, values = random_block(np.random.default_rng(5), 0, 3000, 40)
    frame = codec.encode(indices, values, 0, 3000)
    room = np.zeros(len(frame) + 8, np.uint8)
    for offset in range(8):
        room[offset : offset + len(frame)] = frame
        got = codec.decode(room[offset : offset + len(frame)], False)
        assert (got.indices.tobytes(), got.values.tobytes()) == (indices.tobytes(), values.tobytes())
