"""Residuals that are completed by the next pass over them: what is left to write, and the pass that writes it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.test_kernels import Types, dense_vectors, index_sets, large, quick, sparse_vectors, ways_to_pass
from spardl import kernels

NATIVE, ORACLE = kernels.load("native"), kernels.load("numpy")


@pytest.fixture(scope="module", params=["float32-int32", "float32-int64", "float64-int32", "float64-int64"])
def types(request):
    return Types(*(np.dtype(name).type for name in request.param.split("-")))


def expected_corrections(size, types, wanted, received, sent):
    """Written into a vector of zeros, one by one."""
    dense = np.zeros(size, types.value)
    for vectors in (received, sent):
        ORACLE.overwrite_where_many(dense, wanted, vectors)
    return dense


def assert_corrects(size, types, wanted, received, sent):
    indices, values = NATIVE.corrector.corrections(wanted, received, sent)
    assert (indices.dtype, values.dtype) == (types.index, types.value)
    assert np.all(np.diff(indices) > 0)
    blocks = zip(wanted, received, sent, strict=True)
    among = [np.intersect1d(want, np.union1d(got, gave)) for want, (got, _), (gave, _) in blocks]
    np.testing.assert_array_equal(indices, np.concatenate(among))
    dense = np.zeros(size, types.value)
    dense[indices] = values
    assert dense.tobytes() == expected_corrections(size, types, wanted, received, sent).tobytes()


@quick
@given(data=st.data())
def test_what_was_sent_comes_before_what_was_received(types, data):
    blocks, size = data.draw(st.integers(1, 3)), 60
    lots = {"wanted": [], "received": [], "sent": []}
    for block in range(blocks):
        base = np.array(block * size, types.index)
        lots["wanted"].append(data.draw(index_sets(types, size)) + base)
        for kind in ("received", "sent"):
            indices, values = data.draw(
                sparse_vectors(types, size) | st.just((base[None][:0], np.zeros(0, types.value)))
            )
            lots[kind].append((indices + base, values))
    assert_corrects(blocks * size, types, **lots)


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_large_vectors(types, overlap):
    rng = np.random.default_rng(6)
    size = 100_000

    def vector(seed):
        indices = np.flatnonzero(np.random.default_rng(seed).random(size) < 0.02).astype(types.index)
        return indices, rng.standard_normal(len(indices)).astype(types.value)

    wanted = vector(1)[0]
    received, sent = vector(2), vector(3)
    share = rng.random(len(wanted)) < overlap
    indices = np.union1d(wanted[share], sent[0][: len(sent[0]) // 2]).astype(types.index)
    sent = indices, rng.standard_normal(len(indices)).astype(types.value)
    assert_corrects(size, types, [wanted], [received], [sent])
    assert_corrects(size, types, [wanted], [(wanted[:0], received[1][:0])], [sent])
    assert_corrects(size, types, [wanted], [received], [(wanted, np.ones(len(wanted), types.value))])


def assert_accumulates_what_was_corrected(types, grad, residual, cuts, corrections, order):
    """All blocks, one by one; the residual ends as if it had been corrected before."""
    bounds = np.array([0, *cuts, len(grad)], np.int64)
    count = len(bounds) - 1
    floors, starts = np.full(count, 2.0, types.value), np.arange(count + 1, dtype=np.int64) * len(grad)
    right = residual.copy()
    right[corrections[0]] = corrections[1]

    def passed(accumulate, owed, *corrections):
        out, indices, values = np.empty_like(grad), np.zeros(starts[-1], types.index), np.zeros(starts[-1], types.value)
        found, candidates = [], []
        for block in order(range(count)):
            found.append(accumulate([block], grad, owed, out, bounds, floors, starts, indices, values, *corrections))
            taken = slice(starts[block], starts[block] + found[-1][0][0])
            candidates.append((indices[taken].tobytes(), values[taken].tobytes()))
        return found, owed.tobytes(), out.tobytes(), candidates

    expected = passed(ORACLE.accumulate, right)
    for way in ways_to_pass(NATIVE):
        assert passed(NATIVE.corrector.accumulate_corrected, residual.copy(), *corrections) == expected, way


@quick
@given(data=st.data())
def test_the_pass_writes_corrections_first(types, data):
    size = data.draw(st.integers(0, 80) | st.integers(600, 700))
    if size <= 80:
        grad, residual = (data.draw(dense_vectors(types, size)) for _ in range(2))
        corrections = data.draw(sparse_vectors(types, size))
    else:
        rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
        grad, residual = rng.standard_normal((2, size)).astype(types.value)
        indices = np.flatnonzero(rng.random(size) < data.draw(st.sampled_from([0.01, 0.5, 1]))).astype(types.index)
        corrections = indices, rng.standard_normal(len(indices)).astype(types.value)
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=2)))
    assert_accumulates_what_was_corrected(
        types, grad, residual, cuts, corrections, data.draw(st.sampled_from([list, reversed]))
    )


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_pass_over_large_blocks(types, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    grad, residual = large("normal", 900_001, types.value), large("normal", 900_002, types.value)[1:].copy()
    indices = np.flatnonzero(np.random.default_rng(1).random(len(grad)) < 0.01).astype(types.index)
    corrections = indices, large("ties", len(indices), types.value)
    assert_accumulates_what_was_corrected(types, grad, residual, [7, 800_000], corrections, reversed)
