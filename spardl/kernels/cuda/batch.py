"""Sparse vectors that kernels work on together: slices of one pair of arrays."""

from collections.abc import Sequence
from typing import NamedTuple

from spardl.kernels.api import Pair
from spardl.kernels.cuda.namespace import DeviceArray, Namespace
from spardl.kernels.cuda.segments import begins_of


class Batch(NamedTuple):
    """Vectors in ``indices`` and ``values``. Without indices, element i of ``values`` has index i."""

    indices: DeviceArray
    values: DeviceArray
    begins: list[int]
    most: list[int]  # how long each of them is at most
    lengths: DeviceArray | None = None  # how long they are, where only the device knows; else that is the most


def together(on: Namespace, vectors: Sequence[Pair]) -> Batch:
    """Without a copy if they are slices of the same arrays, as the results of batches are."""
    lengths = [len(indices) for indices, _ in vectors]
    places = [(on.slice_of(indices), on.slice_of(values)) for indices, values in vectors if len(indices)]
    if not places:
        return Batch(*vectors[0], [0] * len(vectors), lengths)
    (indices, _), (values, _) = places[0]
    if all(i.whole is indices and v.whole is values and i.begin == v.begin for i, v in places):
        begins = iter([place.begin for place, _ in places])
        return Batch(indices, values, [next(begins) if length else 0 for length in lengths], lengths)
    indices, values = (in_one(on, parts) for parts in zip(*vectors, strict=True))
    return Batch(indices, values, begins_of(lengths), lengths)


def in_one(on: Namespace, parts: Sequence[DeviceArray]) -> DeviceArray:
    """Arrays one after the other. What is alone is not copied."""
    return parts[0] if len(parts) == 1 else on.concatenate(list(parts))
