"""Results of rounds that are not what was sent: an error that says so, and nothing else."""

import numpy as np
import pytest

from spardl import WireError, kernels
from spardl.protocols.rna.parts import DensePart, Shift, SparsePart, Sum
from spardl.sparse import SparseVector
from spardl.wire import Codec

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
    got = part.read(*part.write(result(part)))
    assert got.contributors == 4
    np.testing.assert_array_equal(got.vector.to_dense(), result(part).vector.to_dense())


def test_results_that_were_cut_or_made_longer(part):
    kind, message = part.write(result(part))
    for length in range(len(message)):
        with pytest.raises(WireError):
            part.read(kind, message[:length])
    with pytest.raises(WireError):
        part.read(kind, np.append(message, np.zeros(8, np.uint8)))


@pytest.mark.parametrize("number", [-1, 2**40])
def test_results_of_ranks_that_cannot_be(part, number):
    kind, message = part.write(result(part))
    place = slice(-4, None) if isinstance(part, DensePart) else slice(0, 8)
    message[place].view(np.float32 if isinstance(part, DensePart) else np.int64)[0] = number
    with pytest.raises(WireError, match="which cannot be"):
        part.read(kind, message)


def test_results_of_another_gradient():
    chosen = kernels.load("native")
    for size, dtype, complaint in ((60, np.float32, "expected one of"), (SIZE, np.float64, "float64 arrived")):
        other = SparsePart(size, 5, dtype, chosen, Codec(chosen))
        vector = SparseVector.trusted(np.array([3], np.int32), np.ones(1, dtype), size)
        with pytest.raises(WireError, match=complaint):
            SparsePart(SIZE, 5, np.float32, chosen, Codec(chosen)).read(*other.write(Sum(vector, 1)))


def test_shifts_come_back_and_damaged_ones_do_not(part):
    kind, message = part.write(Shift(np.arange(SIZE, dtype=np.float32)))
    np.testing.assert_array_equal(part.read(kind, message).delta, np.arange(SIZE))
    with pytest.raises(WireError):
        part.read(kind, message[:-4])
    with pytest.raises(WireError, match="of a kind that is not known"):
        part.read("sums", message)
