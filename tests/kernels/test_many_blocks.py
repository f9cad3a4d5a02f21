"""The kernels for several blocks against the oracle's, one block after the other, to the bit."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.test_kernels import (
    LARGE,
    Types,
    assert_same,
    check,
    counts_to_select,
    dense_vectors,
    floors_for,
    index_sets,
    large,
    packable,
    quick,
    run,
    sparse_vectors,
)
from spardl import kernels


@pytest.fixture(scope="module")
def backend():
    """One is enough: on CPUs all share the loops, and ``test_kernels`` has what is in them."""
    return kernels.load("numba")


@pytest.fixture(scope="module", params=[Types(np.float32, np.int32), Types(np.float64, np.int64)], ids=str)
def types(request):
    return request.param


# Blocks without elements, with a few, and with so many that they take several tiles.
lengths = st.lists(st.sampled_from([0, 1, 5, 60, 150]), min_size=1, max_size=5)


@st.composite
def block_bounds(draw):
    """Blocks of very different length, one after the other."""
    ends = np.cumsum([0, *draw(lengths)]).tolist()
    return list(pairwise(ends))


@st.composite
def sparse_blocks(draw, types, bounds):
    """A sparse vector in each block; in some there is none."""
    vectors = []
    for lo, hi in bounds:
        indices, values = draw(sparse_vectors(types, draw(st.sampled_from([0, hi - lo]))))
        vectors.append((indices + types.index(lo), values))
    return vectors


def in_pieces(kind, types, sizes):
    """Vectors too long to draw, of the given lengths."""
    values = [large(kind, size, types.value) for size in sizes]
    return [(np.arange(0, 3 * len(part), 3).astype(types.index), part) for part in values]


def check_accumulate_some(backend, types, blocks, grad, residual, bounds, floors, rooms):
    starts = np.cumsum([2, *rooms])
    buffers = np.full(starts[-1] + 2, -7, types.index), np.full(starts[-1] + 2, -7, types.value)
    args = (
        *(blocks, grad, residual, np.full_like(grad, 5), np.array(bounds, np.int64)),
        *(np.array(floors, types.value), starts.astype(np.int64), *buffers),
    )
    (counts, bad), (*_, out, _, _, _, indices, values) = run(backend, "accumulate", *args)
    expected = np.full_like(grad, 5)
    for j in blocks:
        lo, hi = bounds[j : j + 2]
        with np.errstate(all="ignore"):
            expected[lo:hi] = grad[lo:hi] + residual[lo:hi]
    assert_same(out, expected, "sums of these blocks and of no others")
    for j, count in zip(blocks, counts, strict=True):
        lo, hi = bounds[j : j + 2]
        hits = lo + np.flatnonzero(np.abs(expected[lo:hi]) >= args[5][j])
        assert count == len(hits)
        stored, at = hits[: rooms[j]], slice(starts[j], starts[j] + min(count, rooms[j]))
        assert_same(indices[at], stored.astype(types.index), f"candidates of block {j}")
        assert_same(values[at], expected[stored], f"candidates of block {j}")
    untouched = [slice(0, 2), slice(starts[-1], None)]
    untouched += [slice(starts[j], starts[j + 1]) for j in range(len(rooms)) if j not in blocks]
    assert all((indices[at] == -7).all() and (values[at] == -7).all() for at in untouched)
    bads = [lo for j in blocks for lo in range(*bounds[j : j + 2]) if not np.isfinite(expected[lo])]
    assert bad == (min(bads) if bads else -1)


@quick
@given(data=st.data())
def test_accumulate_some(backend, types, data):
    bounds = np.cumsum([0, *data.draw(lengths)]).tolist()
    grad, residual = (data.draw(dense_vectors(types, bounds[-1])) for _ in range(2))
    for place in data.draw(st.sets(st.integers(0, 2 * bounds[-1]), max_size=2)):
        if place < bounds[-1]:
            grad[place] = np.inf
    floors = [data.draw(floors_for(types, grad + residual)) for _ in bounds[1:]]
    rooms = [data.draw(st.integers(0, 5) | st.just(bounds[-1])) for _ in bounds[1:]]
    blocks = data.draw(st.permutations(range(len(floors))))
    blocks = blocks[: data.draw(st.integers(1, len(blocks)))]
    check_accumulate_some(backend, types, blocks, grad, residual, bounds, floors, rooms)


@quick
@given(data=st.data())
def test_topk_dense_many(backend, types, data):
    bounds = data.draw(block_bounds())
    dense = data.draw(dense_vectors(types, bounds[-1][1]))
    bounds = data.draw(st.permutations(bounds))
    ks = [data.draw(counts_to_select(hi - lo)) for lo, hi in bounds]
    check(backend, "topk_dense_many", dense, bounds, ks, types.index)


@quick
@given(data=st.data())
def test_select_many(backend, types, data):
    bounds = data.draw(st.permutations(data.draw(block_bounds())))
    vectors, overs = (data.draw(sparse_blocks(types, bounds)) for _ in range(2))
    floors = [data.draw(floors_for(types, np.concatenate([a[1], b[1]]))) for a, b in zip(vectors, overs, strict=True)]
    ks = [data.draw(counts_to_select(len(indices))) for indices, _ in vectors]
    check(backend, "select_many", vectors, overs, ks, floors)


@quick
@given(data=st.data())
def test_overlay_many(backend, types, data):
    bounds = data.draw(block_bounds())
    dense = data.draw(dense_vectors(types, bounds[-1][1]))
    bounds = data.draw(st.permutations(bounds))
    check(
        backend, "overlay_many", data.draw(sparse_blocks(types, bounds)), dense, data.draw(sparse_blocks(types, bounds))
    )


@quick
@given(data=st.data())
def test_overwrite_where_many(backend, types, data):
    bounds = data.draw(block_bounds())
    dense = data.draw(dense_vectors(types, bounds[-1][1]))
    wanted = [data.draw(index_sets(types, hi - lo)) + types.index(lo) for lo, hi in bounds]
    check(backend, "overwrite_where_many", dense, wanted, data.draw(sparse_blocks(types, bounds)))


@quick
@given(data=st.data())
def test_pack_and_unpack_many(backend, types, data):
    """Every block in its own way; some without entries, and some cut short on arrival."""
    blocks = data.draw(st.lists(packable(types), min_size=1, max_size=4))
    streams = check(backend, "pack_many", blocks)
    counts = [data.draw(st.just(len(indices)) | st.integers(0, len(indices))) for indices, _, _ in blocks]
    packed = [
        (*words, count, base, bits) for words, count, (_, base, bits) in zip(streams, counts, blocks, strict=True)
    ]
    unpacked = check(backend, "unpack_many", packed, types.index)
    assert_same(
        unpacked, [indices[:count] for (indices, _, _), count in zip(blocks, counts, strict=True)], "round trip"
    )


@pytest.mark.parametrize("short", [0, 1, 2])
def test_unpack_many_refuses_any_stream_that_ends_early(backend, types, short):
    blocks = [(np.arange(count, dtype=types.index), 0, 0) for count in (70, 0, 130)]
    packed = [[*words, len(block[0]), 0, 0] for words, block in zip(backend.pack_many(blocks), blocks, strict=True)]
    packed[short][2] += 64
    there = len(blocks[short][0])
    with pytest.raises(ValueError, match=f"packed indices end after {there} of {there + 64} entries"):
        backend.unpack_many([tuple(block) for block in packed], types.index)


@pytest.mark.parametrize("kind", LARGE)
def test_blocks_of_every_kind_of_values(backend, types, kind):
    """Several tiles each, many ties, more wanted than there is, and nothing in between."""
    sizes, ks = [700, 0, 3, 300, 129], [100, 5, 9, 299, 200]
    vectors, overs = in_pieces(kind, types, sizes), in_pieces("ties", types, [50, 4, 0, 300, 0])
    least = float(np.finfo(types.value).smallest_subnormal)
    check(backend, "select_many", vectors, overs, ks, [least, least, 1.0, 0.5, least])
    dense = np.concatenate([values for _, values in vectors])
    ends = np.cumsum([0, *sizes]).tolist()
    bounds = list(pairwise(ends))
    check(backend, "topk_dense_many", dense, bounds, ks, types.index)
