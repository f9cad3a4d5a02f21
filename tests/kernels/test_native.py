"""What only the compiled kernels have: threads, and a portable path beside AVX2."""

import os
import subprocess
import sys

import numpy as np
import pytest

from spardl import kernels

NATIVE, ORACLE = kernels.load("native"), kernels.load("numpy")


def accumulated(backend, size, blocks, room, floor, seed=0):
    rng = np.random.default_rng(seed)
    grad, residual = rng.standard_normal((2, size)).astype(np.float32)
    out = np.empty_like(grad)
    bounds = np.array([j * size // blocks for j in range(blocks + 1)], np.int64)
    starts = np.arange(blocks + 1, dtype=np.int64) * room
    indices, values = np.full(room * blocks, -1, np.int32), np.zeros(room * blocks, np.float32)
    counts, bad = backend.accumulate(
        range(blocks), grad, residual, out, bounds, np.full(blocks, floor, np.float32), starts, indices, values
    )
    return counts, bad, out, indices, values


@pytest.mark.parametrize("threads", ["2", "3"])
@pytest.mark.parametrize("room", [200_000, 1000])
def test_threads_find_what_one_thread_finds(monkeypatch, threads, room):
    """Also when there is not room for all candidates."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    in_parts = accumulated(NATIVE, 2_000_003, 2, room, 3.5)
    for got, expected in zip(in_parts, accumulated(ORACLE, 2_000_003, 2, room, 3.5), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_portable_path_equals_the_oracle():
    """In a process of its own, since the choice is made once."""
    program = (
        "import numpy as np\n"
        "from spardl.kernels import _native\n"
        "assert _native.simd() == 'portable'\n"
        "from kernels.test_native import NATIVE, ORACLE, accumulated\n"
        "for size in (0, 1, 63, 64, 65, 5000):\n"
        "    for a, b in zip(accumulated(NATIVE, size, 3, 900, 1.2), accumulated(ORACLE, size, 3, 900, 1.2)):\n"
        "        np.testing.assert_array_equal(a, b)\n"
        "big = np.random.default_rng(0).standard_normal(300_000)\n"
        "for a, b in zip(NATIVE.topk_dense(big, 700, 5, np.int64), ORACLE.topk_dense(big, 700, 5, np.int64)):\n"
        "    np.testing.assert_array_equal(a, b)\n"
        "ones, others = (np.arange(0, 3000, step, dtype=np.int32) for step in (2, 3))\n"
        "vectors = [(places, big[places].astype(np.float32)) for places in (ones, others)]\n"
        "dense = [np.zeros(3000, np.float32) for _ in range(2)]\n"
        "for kernels, out in zip((NATIVE, ORACLE), dense):\n"
        "    kernels.overwrite_where(out, ones, *vectors[1])\n"
        "np.testing.assert_array_equal(*dense)\n"
        "for a, b in zip(*(k.select(*vectors[0], *vectors[1], 200, 0.5) for k in (NATIVE, ORACLE))):\n"
        "    np.testing.assert_array_equal(a, b)\n"
        "low, high = NATIVE.pack(others, 0, 1)\n"
        "for a, b in zip((low, high), ORACLE.pack(others, 0, 1)):\n"
        "    np.testing.assert_array_equal(a, b)\n"
        "np.testing.assert_array_equal(NATIVE.unpack(low, high, len(others), 0, 1, np.int32), others)\n"
    )
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = os.environ | {"SPARDL_SIMD": "portable", "PYTHONPATH": tests}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["normal", "equal", "two levels", "rare"])
def test_large_dense_blocks(kind):
    """Large enough for the sampled floor; data that mislead it fall through to the radix search."""
    rng = np.random.default_rng(3)
    size, k = 200_000, 1500
    dense = {
        "normal": rng.standard_normal(size),
        "equal": np.full(size, 2.5),
        "two levels": np.where(rng.random(size) < 0.5, 1.0, -3.0),
        "rare": np.where(rng.random(size) < 0.001, 7.0, 0.0),
    }[kind].astype(np.float32)
    for got, expected in zip(
        NATIVE.topk_dense(dense, k, 0, np.int32), ORACLE.topk_dense(dense, k, 0, np.int32), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("size", [16_000, 90_000])  # one sample; and a second one of what the first does not rule out
@pytest.mark.parametrize("share", [0.0, 0.06, 0.6, 0.9999])
@pytest.mark.parametrize("place", [0, 7])
def test_a_sample_that_misleads(size, share, place):
    """Large entries where the sample looks, or everywhere else: the cut is not where it seems to be."""
    rng = np.random.default_rng(4)
    values = rng.uniform(1, 2, size).astype(np.float32) * rng.choice(np.float32([-1, 1]), size)
    values[place :: len(values) // 512] *= 100 if place == 0 else 1e-2
    assert_selects_as_the_oracle(values, 1 + int(share * size), 1e-3)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("different", [1, 3, 100, 10_000])
def test_many_entries_that_tie(share, different):
    """Samples that cannot tell them apart, once or twice."""
    rng = np.random.default_rng(5)
    values = rng.integers(1, different + 1, 90_000).astype(np.float32)
    assert_selects_as_the_oracle(values, int(share * len(values)), 0.5)


def assert_selects_as_the_oracle(values, k, floor):
    indices, nothing = np.arange(len(values), dtype=np.int32), (np.empty(0, np.int32), np.empty(0, np.float32))
    for got, expected in zip(*(b.select(indices, values, *nothing, k, floor) for b in (NATIVE, ORACLE)), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_large_arrays_that_last_do_not_begin_alike():
    """Whole pages apart, each in memory of its own: see there why."""
    arrays = [kernels.memory.HOST.lasting(2_000_000, np.float32) for _ in range(2)]
    assert all(array.shape == (2_000_000,) and array.flags.c_contiguous and not array.any() for array in arrays)
    begin, other = (array.ctypes.data - array.base.ctypes.data for array in arrays)
    assert begin != other
    assert begin % 4096 == other % 4096 == 0


def test_concatenate_is_numpys_and_refuses_what_it_does_not_know():
    parts = [np.arange(3, dtype=np.float32), np.empty(0, np.float32), np.ones(2, np.float32)]
    joined = kernels.memory.concatenate(parts)
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined, np.concatenate(parts))
    for wrong in ([], [parts[0], np.arange(3)], [parts[0][::2]], [np.ones((2, 2), np.float32)]):
        with pytest.raises(ValueError, match="concatenate: expected"):
            kernels.memory.concatenate(wrong)


@pytest.mark.parametrize("bits", [0, 1, 5, 7, 8])
@pytest.mark.parametrize("count", [447, 448, 449, 2000])
def test_indices_that_are_unpacked_in_several_goes(bits, count):
    """Eight by eight where their low parts are narrow, and some hundreds of ones at once."""
    gaps = np.random.default_rng(count).geometric(0.7 / 2**bits, count)
    indices = (np.cumsum(gaps) + 99).astype(np.int32)
    low, high = ORACLE.pack(indices, 100, bits)
    for asked in (count, count - 1, count - 9):
        np.testing.assert_array_equal(NATIVE.unpack(low, high, asked, 100, bits, np.int32), indices[:asked])
