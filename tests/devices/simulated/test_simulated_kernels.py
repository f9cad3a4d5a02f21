"""Every kernel in Numba's simulator against the oracle, to the bit: the properties that the CPU's backends have too."""

import numpy as np
import pytest
from devices.on_device import OnDevice
from devices.simulated.scheduler import Block
from kernels.test_kernels import (  # noqa: F401
    LARGE,
    Types,
    assert_same,
    check,
    check_accumulate,
    large,
    test_accumulate,
    test_accumulate_reports_the_first_non_finite_sum,
    test_add,
    test_add_keeps_zero_sums_and_lone_negative_zeros,
    test_add_many,
    test_overlay,
    test_pack_and_unpack,
    test_scatter_add,
    test_select,
    test_select_rounds_the_floor_to_the_values_type,
    test_split,
    test_ties_go_to_the_lower_index_and_zeros_are_left,
    test_topk_dense,
    test_unpack_refuses_a_stream_that_ends_early,
    test_writes_where_wanted,
)
from kernels.test_many_blocks import (  # noqa: F401
    check_accumulate_some,
    in_pieces,
    test_accumulate_some,
    test_blocks_of_every_kind_of_values,
    test_overlay_many,
    test_overwrite_where_many,
    test_pack_and_unpack_many,
    test_select_many,
    test_topk_dense_many,
    test_unpack_many_refuses_any_stream_that_ends_early,
)

from spardl.kernels.cuda.jit import MOST_DIGIT_BITS, MOST_THREADS
from spardl.kernels.cuda.simulated import SimulatedNamespace

LEAST = float(np.finfo(np.float32).smallest_subnormal)


@pytest.fixture(scope="module")
def backend():
    return OnDevice(SimulatedNamespace())


@pytest.fixture(
    scope="module",
    params=[Types(np.float32, np.int32), Types(np.float64, np.int64)],
    ids=lambda types: f"{types.value.__name__}-{types.index.__name__}",
)
def types(request):
    return request.param


def check_all(backend, types, size):
    """All kernels once on vectors that take several blocks of threads, with many ties."""
    dense, other = large("ties", size, types.value), large("normal", size, types.value)
    a = np.arange(0, size, 3).astype(types.index)
    b = np.arange(1, size, 2).astype(types.index)
    check_accumulate(backend, types, dense, other, [0, size // 3, size], [1.0, 2.5], [size, size // 8])
    check(backend, "topk_dense", dense, size // 3, 11, types.index)
    check(backend, "split", a, dense[a], size // 7)
    check(backend, "select", a, dense[a], b, other[b], size // 4, 0.5)
    check(backend, "add_many", [(a, dense[a]), (b, other[b]), (a, other[a])])
    check(backend, "overlay", a, other[a], dense, b, other[b])
    check(backend, "scatter_add", dense, a, other[a])
    check(backend, "overwrite_where", dense, a, b, other[b])
    check(backend, "add_where", dense, b, a, other[a])
    vectors, overs = in_pieces("ties", types, [size, 2, size // 2]), in_pieces("ties", types, [size // 5, 0, size])
    check(backend, "select_many", vectors, overs, [size // 4, 9, size // 3], [0.5, 1.0, 2.0])
    check(backend, "overlay_many", overs, np.zeros(3 * size, types.value), vectors)
    quarters = [0, size // 4, size // 4, size // 2, size]
    check_accumulate_some(backend, types, [3, 1, 0], dense, other, quarters, [1.0, 2.0, 1.0, 0.5], [size] * 4)
    low, high = check(backend, "pack", a, 0, 1)
    check(backend, "unpack", low, high, len(a), 0, 1, types.index)
    blocks = [(a, 0, 1), (b, 0, 0), (a[:2], 0, 5)]
    streams = check(backend, "pack_many", blocks)
    packed = [(*words, len(block[0]), *block[1:]) for words, block in zip(streams, blocks, strict=True)]
    check(backend, "unpack_many", packed, types.index)


@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_blocks_and_threads_makes_no_difference(types, seed, monkeypatch):
    monkeypatch.setattr(Block, "seed", seed)
    check_all(OnDevice(SimulatedNamespace()), types, 700)


@pytest.mark.parametrize("threads", [1, 2, 32])
def test_size_of_blocks_makes_no_difference(threads):
    check_all(OnDevice(SimulatedNamespace(threads)), Types(np.float32, np.int32), 300)


def test_blocks_and_digits_of_a_real_device():
    backend = OnDevice(SimulatedNamespace(MOST_THREADS, MOST_DIGIT_BITS))
    check(backend, "topk_dense", large("normal", 9000, np.float32), 90, 0, np.int32)


@pytest.mark.parametrize("kind", LARGE)
def test_selection_from_every_kind_of_values(backend, types, kind):
    values = large(kind, 600, types.value)
    indices = np.arange(0, 1800, 3).astype(types.index)
    for k in (1, 60, 600, 605):
        check(backend, "topk_dense", values, k, 11, types.index)
        check(backend, "split", indices, values, k)
    check(backend, "select", indices, values, indices[:50], values[-50:], 60, LEAST)


def test_slices_of_one_array_are_not_copied(monkeypatch):
    backend = OnDevice(SimulatedNamespace())
    vectors, overs = (in_pieces("ties", Types(np.float32, np.int32), sizes) for sizes in ([40, 0, 300], [90, 30, 0]))
    joined = [backend._there(np.concatenate(parts)) for parts in zip(*vectors, strict=True)]
    slices = [tuple(array[begin:end] for array in joined) for begin, end in ((0, 40), (40, 40), (40, 340))]
    expected = backend.select_many(vectors, overs, [20, 7, 100], [1.0] * 3)
    overs = backend._there(overs)
    copied, concatenate = [], SimulatedNamespace.concatenate
    monkeypatch.setattr(
        SimulatedNamespace, "concatenate", lambda self, parts: copied.append(len(parts)) or concatenate(self, parts)
    )
    got = backend.kernels.select_many(slices, overs, [20, 7, 100], [1.0] * 3)
    assert copied == [3, 3]  # indices and values of the others, which are arrays of their own
    assert_same(backend._back(got), expected, "select_many of slices")
