"""Notes and results that are not what was sent: an error that says so, and nothing else."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spardl import WireError, kernels
from spardl.sparse import SparseVector
from spardl.sync.notes import Commit, Go, Want, Working, from_bytes, to_bytes
from spardl.sync.parts import DensePart, SparsePart, Sum
from spardl.wire import Codec

NOTES = [Go(3, 4, (0, 2), 1, True), Commit(2, (1,), "terms"), Want(7), Working(0.5)]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_notes_come_back(note):
    assert from_bytes(to_bytes(note)) == note


@pytest.mark.parametrize(
    "told",
    [
        "",
        "{",
        "5",
        "null",
        "[]",
        '["Want"]',
        '["Want", 5]',
        '["Want", {}]',
        '["Want", {"round": "3"}]',
        '["Want", {"round": null}]',
        '["Want", {"round": 1.5}]',
        '["Want", {"round": true}]',
        '["Want", {"round": 1, "more": 2}]',
        '["Nothing", {}]',
        '[["Want"], {"round": 1}]',
        '["Go", {"round": 1, "number": 2, "members": 3}]',
        '["Go", {"round": 1, "number": 2, "members": [0, "1"]}]',
        '["Commit", {"round": 1, "has": [1], "terms": 2}]',
        "[" * 100_000,
    ],
)
def test_what_is_no_note(told):
    with pytest.raises(WireError, match="no note of spardl's"):
        from_bytes(told.encode())


@given(st.sampled_from(NOTES), st.integers(0, 200), st.integers(0, 255))
def test_damaged_notes_are_notes_or_refused(note, place, byte):
    text = bytearray(to_bytes(note))
    text[place % len(text)] = byte
    try:
        got = from_bytes(bytes(text))
    except WireError:
        return
    assert json.loads(to_bytes(got))


SIZE = 50


@pytest.fixture(params=["sparse", "dense"])
def part(request):
    if request.param == "dense":
        return DensePart(SIZE, np.float32)
    chosen = kernels.load("native")
    return SparsePart(SIZE, 5, np.float32, chosen, Codec(chosen))


def result(part):
    indices = None if isinstance(part, DensePart) else np.array([3, 9], np.int32)
    values = np.ones(SIZE if indices is None else 2, np.float32)
    return Sum(SparseVector.trusted(indices, values, SIZE), 4)


def test_results_come_back(part):
    got = part.read(part.write(result(part)))
    assert got.contributors == 4
    np.testing.assert_array_equal(got.vector.to_dense(), result(part).vector.to_dense())


def test_results_that_were_cut_or_made_longer(part):
    message = part.write(result(part))
    for length in range(len(message)):
        with pytest.raises(WireError):
            part.read(message[:length])
    with pytest.raises(WireError):
        part.read(np.append(message, np.zeros(8, np.uint8)))


@pytest.mark.parametrize("number", [-1, 2**40])
def test_results_of_ranks_that_cannot_be(part, number):
    message = part.write(result(part))
    place = slice(-4, None) if isinstance(part, DensePart) else slice(0, 8)
    message[place].view(np.float32 if isinstance(part, DensePart) else np.int64)[0] = number
    with pytest.raises(WireError, match="which cannot be"):
        part.read(message)


def test_results_of_another_gradient():
    chosen = kernels.load("native")
    for size, dtype, complaint in ((60, np.float32, "expected one of"), (SIZE, np.float64, "float64 arrived")):
        other = SparsePart(size, 5, dtype, chosen, Codec(chosen))
        vector = SparseVector.trusted(np.array([3], np.int32), np.ones(1, dtype), size)
        with pytest.raises(WireError, match=complaint):
            SparsePart(SIZE, 5, np.float32, chosen, Codec(chosen)).read(other.write(Sum(vector, 1)))
