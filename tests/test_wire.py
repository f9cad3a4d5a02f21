"""Frames and messages: lossless, self-describing, and as small as claimed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spardl import WireError, kernels, wire
from spardl.effects import parts_of
from spardl.wire import Codec

CODINGS = ["raw", "packed", "auto"]


def random_block(rng, base, length, count, dtype=np.float32, index_dtype=np.int32):
    indices = np.sort(rng.choice(length, count, replace=False)) + base
    return indices.astype(index_dtype), rng.standard_normal(count).astype(dtype)


@given(
    base=st.integers(0, 10**6),
    length=st.integers(0, 5000),
    fill=st.floats(0, 1),
    coding=st.sampled_from(CODINGS),
    dtype=st.sampled_from([np.float32, np.float64]),
    wide=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_frames_are_lossless(backend_name, base, length, fill, coding, dtype, wide, seed):
    index_dtype = np.int64 if wide else np.int32
    block = random_block(np.random.default_rng(seed), base, length, int(fill * length), dtype, index_dtype)
    codec = Codec(kernels.load(backend_name), coding)
    got = codec.decode(codec.encode(*block, base, length), wide)
    assert (got.base, got.length) == (base, length)
    assert got.indices.dtype == index_dtype
    assert got.values.dtype == dtype
    np.testing.assert_array_equal(got.indices, block[0])
    assert got.values.tobytes() == block[1].tobytes()


@pytest.mark.parametrize("values", ["same", "bf16"])
@pytest.mark.parametrize(("count", "turns"), [(0, False), (300, False), (700, True), (1000, True)])
def test_dense_where_that_is_shorter(count, turns, values):
    indices, numbers = random_block(np.random.default_rng(count), 50, 1000, count)
    codec = Codec(kernels.load("native"), "raw", values)
    rounded, _ = codec.round(numbers)
    frame = codec.encode_shorter(indices, rounded, 50, 1000)
    got = codec.decode(frame, False)
    assert len(got.indices) == (1000 if turns else count)
    assert len(frame) == min(len(codec.encode(indices, rounded, 50, 1000)), 48 + 1000 * (4 if values == "same" else 2))
    expected = np.zeros(1050, np.float32)
    expected[indices] = rounded
    assert got.indices.dtype == np.int32
    np.testing.assert_array_equal(got.values, expected[got.indices])


@given(
    length=st.integers(0, 3000) | st.sampled_from([2**31, 2**31 + 1]),
    fill=st.sampled_from([0, 0.001, 0.01, 0.5, 1]),
    coding=st.sampled_from(CODINGS),
    values=st.sampled_from(wire.VALUE_CODINGS),
    dtype=st.sampled_from([np.float32, np.float64]),
    wide=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_all_backends_write_the_same_bytes(length, fill, coding, values, dtype, wide, seed):
    """Some by compiled code, some from parts; and each reads what another has written."""
    index_dtype = np.int64 if wide or length > 2**20 else np.int32
    count = int(fill * min(length, 3000))
    indices, numbers = random_block(np.random.default_rng(seed), 0, min(length, 3000), count, dtype, index_dtype)
    if length > 2**20 and count:
        indices[-1] = length - 1
    codecs = [Codec(kernels.load(name), coding, values) for name in kernels.BACKENDS]
    rounded, _ = codecs[0].round(numbers)
    frames = [codec.encode(indices + 7, rounded, 7, length) for codec in codecs]
    assert len({frame.tobytes() for frame in frames}) == 1
    for codec in codecs:
        got = codec.decode(frames[0], index_dtype == np.int64)
        np.testing.assert_array_equal(got.indices, indices + 7)
        assert got.values.tobytes() == rounded.tobytes()


def test_indices_past_two_to_the_31():
    indices = np.array([0, 2**31 - 1, 2**31, 2**40], np.int64)
    values = np.arange(4.0)
    for coding in CODINGS:
        codec = Codec(kernels.load("native"), coding)
        np.testing.assert_array_equal(codec.decode(codec.encode(indices, values, 0, 2**41), True).indices, indices)


def test_bytes_per_selected_gradient_at_one_percent():
    """8 raw; packed within a few hundredths of the entropy, 5.01."""
    size, count = 14_728_266, 147_283
    block = random_block(np.random.default_rng(1), 0, size, count)
    per_entry = {
        coding: len(Codec(kernels.load("native"), coding).encode(*block, 0, size)) / count for coding in CODINGS
    }
    assert per_entry["raw"] == pytest.approx(8, abs=0.001)
    assert per_entry["packed"] < 5.05
    assert per_entry["auto"] == per_entry["packed"]


@pytest.mark.parametrize(("length", "count"), [(4, 4), (10**6, 1), (10**6, 2), (100, 0)])
def test_auto_is_never_larger_than_either(length, count):
    block = random_block(np.random.default_rng(2), 0, length, count)
    sizes = {c: len(Codec(kernels.load("native"), c).encode(*block, 0, length)) for c in CODINGS}
    assert sizes["auto"] <= min(sizes["raw"], sizes["packed"]) + 8


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-40, 37), dtype=st.sampled_from([np.float32, np.float64]))
def test_rounding_error_completes_the_value(seed, exponent, dtype):
    values = (np.random.default_rng(seed).standard_normal(50) * 10.0**exponent).astype(dtype)
    for coding in ("bf16", "fp16"):
        codec = Codec(kernels.load("native"), "auto", coding)
        rounded, error = codec.round(values)
        assert np.all(np.isfinite(rounded))
        in_range = np.abs(values) / 2 <= np.abs(rounded).max()  # beyond, the largest number stands in
        np.testing.assert_array_equal((rounded + error)[in_range], values[in_range])
        np.testing.assert_allclose(rounded + error, values, rtol=2 * np.finfo(dtype).eps)
        frame = codec.encode(np.arange(50, dtype=np.int32), rounded, 0, 50)
        assert codec.decode(frame, False).values.tobytes() == rounded.tobytes()


def test_bf16_rounds_to_nearest_even():
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, -3.4e38], np.float32)
    rounded, _ = Codec(kernels.load("native"), "auto", "bf16").round(values)
    largest = np.float32(2.0**127 * (2 - 2**-7))
    expected = np.array([1.0, 1.0, 1 + 2**-6, 1 + 2**-7, largest, -largest], np.float32)
    np.testing.assert_array_equal(rounded, expected)


def test_messages_carry_frames_of_any_length():
    frames = [np.arange(n, dtype=np.uint8) for n in (0, 8, 40, 3)]
    parts = wire.split(np.concatenate(wire.join(frames)), 4)
    assert [part.tobytes() for part in parts] == [frame.tobytes() for frame in frames]


def test_damaged_bytes_are_refused():
    codec = Codec(kernels.load("native"), "packed")
    frame = codec.encode(*random_block(np.random.default_rng(3), 0, 1000, 50), 0, 1000)
    with pytest.raises(WireError, match="shorter than its header"):
        codec.decode(frame[:20], False)
    with pytest.raises(WireError, match="do all ranks run the same spardl"):
        codec.decode(frame[8:], False)
    with pytest.raises(WireError, match=r"a frame of .* was damaged: its checksum does not fit"):
        codec.decode(frame[:-16], False)
    message = np.concatenate(wire.join([frame, frame]))
    with pytest.raises(WireError, match=r"a message of .* was damaged: its checksum does not fit"):
        codec.decode_message(message[:-8], 2, False)


@pytest.mark.parametrize("name", ["native", "numpy"])
def test_messages_that_are_put_together_wrongly_are_refused(name):
    """Without a digest: it would tell them all."""
    codec = Codec(kernels.load(name), "packed")
    frame = codec.encode(*random_block(np.random.default_rng(3), 0, 1000, 50), 0, 1000)
    message = np.concatenate(wire.join([frame, frame]))
    message[:8] = np.frombuffer(b"unsigned", np.uint8)
    assert len(codec.decode_message(message, 2, False)) == 2
    backwards, beyond = message.copy(), message.copy()
    backwards[16:32].view(np.int64)[:] = [len(message), -len(message) + 2 * len(frame)]  # which add up
    beyond[16:32].view(np.int64)[:] = [2**62, 2**62]
    wrong = [(message[:-8], 2), (message, 1), (message, 3), (message, 0), (message, -1), (message, 2**61)]
    for damaged, expected in [*wrong, (message[:4], 2), (message[:16], 2), (backwards, 2), (beyond, 2)]:
        with pytest.raises(WireError, match="expected a message of"):
            codec.decode_message(damaged, expected, False)


@pytest.mark.parametrize("values", ["same", "bf16"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_message_is_its_frames_whoever_writes_it(count, values):
    rng = np.random.default_rng(count)
    blocks = [(1000 * i, 1000) for i in range(count)]
    vectors = [random_block(rng, base, length, 50 * i) for i, (base, length) in enumerate(blocks)]
    written = set()
    for name in ("native", "numpy"):
        codec = Codec(kernels.load(name), "auto", values)
        vectors = [(indices, codec.round(of_them)[0]) for indices, of_them in vectors]
        message = np.concatenate(parts_of(codec.encode_message(vectors, blocks)))
        frames = [codec.encode(*vector, *block) for vector, block in zip(vectors, blocks, strict=True)]
        for frame in frames:
            frame[8:16] = np.frombuffer(b"unsigned", np.uint8)  # the message's digest covers them
        assert message.tobytes() == np.concatenate(wire.join(frames)).tobytes()
        written.add(message.tobytes())
        for block, pair, (base, length) in zip(
            codec.decode_message(message, count, False), vectors, blocks, strict=True
        ):
            assert (block.base, block.length) == (base, length)
            assert [part.tobytes() for part in (block.indices, block.values)] == [part.tobytes() for part in pair]
    assert len(written) == 1


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 56, 57])
def test_low_bits_up_to_the_last_byte(bits):
    """Eight bytes at once are loaded where they are there: at the end of a frame without values they are not."""
    gaps = np.random.default_rng(bits).integers(0, min(2 ** (bits + 1), 2**58), 9)
    indices = np.cumsum(gaps + 1, dtype=np.int64)
    native = kernels.load("native")
    low, high = native.pack(indices, 0, bits)
    np.testing.assert_array_equal(native.unpack(low.copy(), high.copy(), 9, 0, bits, np.int64), indices)
