"""The k largest of several vectors: the launches of ``cut`` and ``partition``."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spardl.kernels.api import Indices, Pair, Values
from spardl.kernels.cuda import cut, partition
from spardl.kernels.cuda.batch import Batch
from spardl.kernels.cuda.jit import WORD
from spardl.kernels.cuda.namespace import DeviceArray, Namespace
from spardl.kernels.cuda.segments import begins_of, make_table, upload


class Chosen(NamedTuple):
    """The k largest of one vector."""

    indices: Indices
    values: Values
    key: int  # of the k-th largest, 0 if there are fewer
    found: int  # how long the vector was
    largest: int  # key of the largest


class Marked(NamedTuple):
    """Vectors in which the k largest are marked; nobody has waited for anything yet."""

    batch: Batch
    wanted: list[int]
    tiles: int
    table: DeviceArray
    lengths: DeviceArray
    above: DeviceArray
    equal: DeviceArray
    sums: DeviceArray
    state: DeviceArray


def mark(on: Namespace, batch: Batch, wanted: Sequence[int]) -> Marked:
    """Finds where the k largest of every vector begin, k being what is ``wanted`` of it."""
    tiles = [-(-most // (WORD * on.threads)) for most in batch.most]
    tops = begins_of([min(k, most) for k, most in zip(wanted, batch.most, strict=True)])
    rows, total = make_table(tiles, batch.begins, wanted, tops)
    if batch.lengths is None:
        table, lengths = upload(on, rows, np.array(batch.most, np.int64))
    else:
        (table,), lengths = upload(on, rows), batch.lengths
    segments, (bits, magnitude), key_bits = len(tiles), keys(batch.values), 8 * batch.values.itemsize - 1
    state = on.zeros(segments * cut.STATES, np.int64)
    passes, buckets = -(-key_bits // on.digit_bits), segments << on.digit_bits
    counted = on.zeros(passes * buckets, np.int64)
    for number in range(passes):
        digits = counted[number * buckets : (number + 1) * buckets]
        open_bits = key_bits - number * on.digit_bits
        left_open = max(open_bits - on.digit_bits, 0)
        on.launch(cut.count_digits, total, bits, magnitude, open_bits, left_open, table, lengths, state, digits)
        is_first = int(number == 0)
        on.launch(cut.find_digit, segments, open_bits - left_open, is_first, table, lengths, digits, state)
    above, equal = on.empty(total * on.threads, np.uint32), on.empty(total * on.threads, np.uint32)
    counts = on.empty(2 * total, np.int64)
    on.launch(partition.mark_cut, total, bits, magnitude, table, lengths, state, above, equal, counts)
    return Marked(batch, list(wanted), total, table, lengths, above, equal, on.running_sum(counts), state)


def take(on: Namespace, marked: Marked, base: int = 0) -> list[Chosen]:
    """Waits for how many there are. ``base`` is added to the indices of elements that have none."""
    batch, wanted = marked.batch, marked.wanted
    ranks = [min(k, most) for k, most in zip(wanted, batch.most, strict=True)]
    indices, values = on.empty(sum(ranks), batch.indices.dtype), on.empty(sum(ranks), batch.values.dtype)
    on.launch(
        *(partition.take_largest, marked.tiles, batch.indices, base, batch.values, *keys(batch.values)),
        *(marked.table, marked.above, marked.equal, marked.sums, marked.state, indices, values),
    )
    states, lengths = on.to_host(marked.state, marked.lengths)
    chosen = []
    for at, k, length, state in zip(
        begins_of(ranks), wanted, lengths.tolist(), states.reshape(-1, cut.STATES), strict=True
    ):
        key, ties, largest = state.tolist()
        rank = min(k, length)
        count = rank if key > 0 else rank - ties  # zeros are not taken
        threshold = key if 0 < count == k else 0
        chosen.append(Chosen(indices[at : at + count], values[at : at + count], threshold, length, largest))
    return chosen


def take_rest(on: Namespace, marked: Marked) -> Pair:
    """What is not among the k largest, for a single vector; room for all of it."""
    indices, values = marked.batch.indices, marked.batch.values
    rest_indices, rest_values = on.empty(len(indices), indices.dtype), on.empty(len(values), values.dtype)
    on.launch(
        *(partition.take_rest, marked.tiles, indices, values, marked.table, marked.lengths),
        *(marked.above, marked.equal, marked.sums, marked.state, rest_indices, rest_values),
    )
    return rest_indices, rest_values


def keys(values: Values) -> tuple[DeviceArray, int]:
    """The values as integers, and the bits of those that are magnitude."""
    return values.view(f"i{values.itemsize}"), (1 << (8 * values.itemsize - 1)) - 1


def magnitude_of(key: int, like: Values) -> float:
    """The number that a key stands for."""
    return float(np.array([key], f"i{like.itemsize}").view(like.dtype)[0])
