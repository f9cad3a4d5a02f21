"""What is done with arrays beside kernels, on a (simulated) GPU as on the host."""

import numpy as np
import pytest

from spardl.kernels import half
from spardl.kernels.cuda.arrays import DeviceArrays
from spardl.kernels.cuda.simulated import SimulatedNamespace
from spardl.kernels.memory import HOST


@pytest.fixture
def arrays():
    return DeviceArrays(SimulatedNamespace())


@pytest.mark.parametrize("coding", ["bf16", "fp16"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sixteen_bits_are_the_host_s(arrays, coding, dtype):
    """All kinds of numbers: halfway between two, subnormal, too large, too small, zeros of both signs."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2**16, 150).astype(np.uint16)
    exact = half.widen(codes, coding, dtype)
    exact = exact[np.isfinite(exact)]
    halfway = half.widen((codes[:60] & 0x7BFF) | 1, coding, np.float32).astype(np.float64)
    halfway -= (halfway - half.widen((codes[:60] & 0x7BFF) & 0xFFFE, coding, np.float32)) / 2
    spread = rng.standard_normal(150) * 10.0 ** rng.integers(-12, 8, 150)
    edges = [
        0.0,
        -0.0,
        2.0**-24,
        2.0**-25,
        -(2.0**-25),
        1.5 * 2.0**-25,
        2.0**-14,
        65504,
        65519.9,
        -65520,
        1e30,
        -3.4e38,
    ]
    values = np.concatenate([exact, halfway, spread, edges]).astype(dtype)
    narrowed = arrays.narrow(arrays.from_host(values), coding)
    widened = arrays.widen(narrowed, coding, dtype)
    got_codes, got = arrays.to_host(narrowed, widened)
    expected = half.narrow(values, coding)
    assert got_codes.tobytes() == expected.tobytes()
    assert got.tobytes() == half.widen(expected, coding, dtype).tobytes()
    (rest,) = arrays.to_host(arrays.subtract(arrays.from_host(values), widened))
    assert rest.tobytes() == (values - got).tobytes()


@pytest.mark.parametrize(("source", "target"), [("i4", "i4"), ("i8", "i4"), ("i4", "i8"), ("i8", "i8")])
def test_shifted_indices_are_the_host_s(arrays, source, target):
    indices = np.array([700, 701, 900], source)
    for by in (-700, 0, 3):
        (got,) = arrays.to_host(arrays.shift(arrays.from_host(indices), by, target))
        expected = HOST.shift(indices, by, target)
        assert (got.dtype, got.tobytes()) == (expected.dtype, expected.tobytes())
        np.testing.assert_array_equal(expected, indices.astype(np.int64) + by)
