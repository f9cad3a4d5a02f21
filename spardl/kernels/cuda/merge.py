"""Two sorted sparse vectors into one, by merge path: every thread merges an equally long stretch.

Where its stretch begins in both vectors a thread finds by bisection. It walks the stretch twice: to count what it will
write, and, in another launch, when the counts of all threads before it are known, to write. Vectors of this kind are
short and lie in cache, so they are not staged in shared memory. One launch merges many pairs of vectors, each pair a
segment.
"""

from typing import Any

import numpy as np
from numba import int32

from spardl.kernels.cuda.block import scan
from spardl.kernels.cuda.jit import MOST_THREADS, cuda, device, kernel
from spardl.kernels.cuda.segments import END_TILE, before_in_segment, place_in_segment, segment_of

STRETCH = 8  # entries of both vectors per thread

# Columns of the table: where the two vectors begin and end, and where the merged one is to begin.
A, A_END, B, B_END, MERGED = 2, 3, 4, 5, 6
COLUMNS = 7

# What becomes of entries. ADD: summed. OVERLAY: what the second has is added to the first, or else to the dense vector.
# OVERRIDE: the first's, or else the second's, if at or above the floor.
ADD, OVERLAY, OVERRIDE = 0, 1, 2


@device
def crossing(indices_a: Any, indices_b: Any, table: Any, row: Any, diagonal: Any) -> Any:
    """How many of the first ``diagonal`` entries of the merged vectors come from the first; it goes first on ties."""
    a, b = table[row + A], table[row + B]
    low = max(0, diagonal - (table[row + B_END] - b))
    high = min(diagonal, table[row + A_END] - a)
    while low < high:
        middle = (low + high) // 2
        if indices_a[a + middle] <= indices_b[b + diagonal - 1 - middle]:
            low = middle + 1
        else:
            high = middle
    return low


@device
def walk(
    kind: Any,
    table: Any,
    segment: Any,
    indices_a: Any,
    values_a: Any,
    indices_b: Any,
    values_b: Any,
    dense: Any,
    floors: Any,
    place: Any,
    indices: Any,
    values: Any,
) -> Any:
    """Merges this thread's stretch and writes it from ``place`` on, or only counts if that is negative."""
    row = segment * COLUMNS
    a, a_end, b_end = table[row + A], table[row + A_END], table[row + B_END]
    entries = a_end - a + b_end - table[row + B]
    begin = min(place_in_segment(table, row) * STRETCH, entries)
    i = crossing(indices_a, indices_b, table, row, begin)
    j = table[row + B] + begin - i
    i += a
    count = 0
    for _ in range(min(STRETCH, entries - begin)):
        if j == b_end or (i < a_end and indices_a[i] <= indices_b[j]):
            index, value = indices_a[i], values_a[i]
            if kind != OVERRIDE and j < b_end and indices_b[j] == index:
                value += values_b[j]
            i += 1
            new = True
        else:
            index, value = indices_b[j], values_b[j]
            new = i == a or indices_a[i - 1] != index  # else it went with the first's
            if new and kind == OVERLAY:
                value = dense[index] + value
            j += 1
        if new and (kind != OVERRIDE or abs(value) >= floors[segment]):
            if place >= 0:
                indices[place + count] = index
                values[place + count] = value
            count += 1
    return count


@kernel("qLIVIVVVMLIV")
def merge_count(
    kind: Any,
    table: Any,
    indices_a: Any,
    values_a: Any,
    indices_b: Any,
    values_b: Any,
    dense: Any,
    floors: Any,
    owns: Any,
    counts: Any,
    indices: Any,
    values: Any,
) -> None:
    """``owns`` gets how many entries each thread will write, and ``counts`` how many each block of threads will."""
    shared = cuda.shared.array(MOST_THREADS, int32)
    segment = segment_of(table, COLUMNS, cuda.blockIdx.x)
    own = walk(kind, table, segment, indices_a, values_a, indices_b, values_b, dense, floors, -1, indices, values)
    owns[cuda.grid(1)] = own
    _, total = scan(shared, own)
    if cuda.threadIdx.x == 0:
        counts[cuda.blockIdx.x] = total


@kernel("qLIVIVVVMLLIV")
def merge_write(
    kind: Any,
    table: Any,
    indices_a: Any,
    values_a: Any,
    indices_b: Any,
    values_b: Any,
    dense: Any,
    floors: Any,
    owns: Any,
    sums: Any,
    lengths: Any,
    indices: Any,
    values: Any,
) -> None:
    """Writes the entries; ``sums`` are the running sums of the counts. ``lengths`` gets how many a segment has."""
    shared = cuda.shared.array(MOST_THREADS, int32)
    tile = cuda.blockIdx.x
    before, total = scan(shared, np.int32(owns[cuda.grid(1)]))
    segment = segment_of(table, COLUMNS, tile)
    row = segment * COLUMNS
    place = before_in_segment(table, row, sums, tile)
    if cuda.threadIdx.x == 0 and tile + 1 == table[row + END_TILE]:
        lengths[segment] = place + total
    place += table[row + MERGED] + before
    walk(kind, table, segment, indices_a, values_a, indices_b, values_b, dense, floors, place, indices, values)
