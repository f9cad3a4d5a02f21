"""Merges of several pairs of sparse vectors: the launches of ``merge``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import Pair, Values
from spardl.kernels.cuda import merge
from spardl.kernels.cuda.batch import Batch, together
from spardl.kernels.cuda.namespace import Namespace
from spardl.kernels.cuda.segments import begins_of, make_table, upload


def merge_all(
    on: Namespace,
    kind: int,
    firsts: Sequence[Pair],
    seconds: Sequence[Pair],
    dense: Values,
    floors: npt.NDArray[Any],
) -> Batch:
    """Each of ``firsts`` with the one of ``seconds`` in its place; the host does not wait."""
    a, b = together(on, firsts), together(on, seconds)
    most = [one + other for one, other in zip(a.most, b.most, strict=True)]
    begins = begins_of(most)
    ends = ([begin + length for begin, length in zip(of.begins, of.most, strict=True)] for of in (a, b))
    a_ends, b_ends = ends
    per_tile = merge.STRETCH * on.threads
    tiles = [-(-count // per_tile) for count in most]
    rows, total = make_table(tiles, a.begins, a_ends, b.begins, b_ends, begins)
    table, there_floors = upload(on, rows, floors)
    indices, values = on.empty(sum(most), a.indices.dtype), on.empty(sum(most), a.values.dtype)
    owns, counts = on.empty(total * on.threads, np.uint32), on.empty(total, np.int64)
    vectors = (kind, table, a.indices, a.values, b.indices, b.values, dense, there_floors)
    on.launch(merge.merge_count, total, *vectors, owns, counts, indices, values)
    sums, lengths = on.running_sum(counts), on.zeros(len(most), np.int64)
    on.launch(merge.merge_write, total, *vectors, owns, sums, lengths, indices, values)
    return Batch(indices, values, begins, most, lengths)


def merged(on: Namespace, kind: int, firsts: Sequence[Pair], seconds: Sequence[Pair], dense: Values) -> list[Pair]:
    """All entries of either, as separate vectors. Where one of every two is empty nobody has to wait for lengths."""
    batch = merge_all(on, kind, firsts, seconds, dense, np.zeros(0, dense.dtype))
    lengths = batch.most
    if any(len(a[0]) and len(b[0]) for a, b in zip(firsts, seconds, strict=True)):
        lengths = on.to_host(batch.lengths)[0].tolist()
    return [
        (batch.indices[begin : begin + length], batch.values[begin : begin + length])
        for begin, length in zip(batch.begins, lengths, strict=True)
    ]
