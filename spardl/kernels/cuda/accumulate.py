"""Gradient plus residual in one pass, with a mark at every candidate; then the candidates, in order.

The first kernel reads and writes every element once, and leaves one bit per element. The second reads those bits, and
the elements that are marked: at 1 % density that is a fortieth of the traffic, so this is as good as one pass.
"""

from typing import Any

import numpy as np
from numba import int32, uint32

from spardl.kernels.cuda.block import lowest_one, scan
from spardl.kernels.cuda.jit import MOST_THREADS, WORD, cuda, kernel
from spardl.kernels.cuda.segments import END_TILE, before_in_segment, place_in_segment, segment_of

# Columns of the table: a block's elements, and the room for its candidates.
LO, HI, ROOM, ROOM_END = 2, 3, 4, 5
COLUMNS = 6


@kernel("VVVLVvMLL")
def accumulate_and_mark(
    grad: Any,
    residual: Any,
    out: Any,
    table: Any,
    floors: Any,
    infinity: Any,
    marks: Any,
    counts: Any,
    found: Any,
) -> None:
    """``counts`` gets the marks per tile.

    ``found`` gets, at its end, how far from the end of ``out`` the first NaN or infinity stands; it was 0, and stays
    so if there is none.
    """
    words = cuda.shared.array(MOST_THREADS, uint32)
    sums = cuda.shared.array(MOST_THREADS, int32)
    me, threads, tile = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    words[me] = 0
    cuda.syncthreads()
    segment = segment_of(table, COLUMNS, tile)
    row = segment * COLUMNS
    floor, hi = floors[segment], table[row + HI]
    start = table[row + LO] + (place_in_segment(table, row) - me) * WORD
    for step in range(WORD):
        place = step * threads + me  # neighbours read neighbours
        at = start + place
        if at < hi:
            total = grad[at] + residual[at]
            out[at] = total
            if abs(total) >= floor:
                # Which thread sets a bit first makes no difference, and few do: this is no bottleneck.
                cuda.atomic.or_(words, place // WORD, uint32(1 << (place % WORD)))
            if not abs(total) < infinity:
                cuda.atomic.max(found, len(found) - 1, len(out) - at)
    cuda.syncthreads()
    marks[tile * threads + me] = words[me]
    _, hits = scan(sums, cuda.popc(words[me]))
    if me == 0:
        counts[tile] = hits


@kernel("VLMLIVL")
def take_candidates(out: Any, table: Any, marks: Any, sums: Any, indices: Any, values: Any, found: Any) -> None:
    """Puts what is marked into the rooms of ``indices`` and ``values``, as far as it fits.

    ``sums`` are the running sums of the counts per tile. ``found`` gets the candidates per segment.
    """
    shared = cuda.shared.array(MOST_THREADS, int32)
    me, threads, tile = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    word = np.int64(marks[tile * threads + me])
    before, hits = scan(shared, cuda.popc(word))
    segment = segment_of(table, COLUMNS, tile)
    row = segment * COLUMNS
    before_this = before_in_segment(table, row, sums, tile)
    if me == 0 and tile + 1 == table[row + END_TILE]:
        found[segment] = before_this + hits
    place = table[row + ROOM] + before_this + before
    end = table[row + ROOM_END]
    start = table[row + LO] + place_in_segment(table, row) * WORD
    while word != 0 and place < end:
        at = start + lowest_one(word)
        indices[place] = at
        values[place] = out[at]
        word &= word - 1
        place += 1
