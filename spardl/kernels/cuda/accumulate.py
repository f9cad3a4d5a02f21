"""Gradient plus residual in one pass, with a mark at every candidate; then the candidates, in order.

The first kernel reads and writes every element once, and leaves one bit per element. The second reads those bits, and
the elements that are marked: at 1 % density that is a fortieth of the traffic, so this is as good as one pass.
"""

from typing import Any

import numpy as np
from numba import int32, uint32

from spardl.kernels.cuda.block import before_tile, lowest_one, scan
from spardl.kernels.cuda.jit import MOST_THREADS, WORD, cuda, kernel


@kernel("VVVqqvvMLL")
def accumulate_and_mark(
    grad: Any,
    residual: Any,
    out: Any,
    lo: Any,
    hi: Any,
    floor: Any,
    infinity: Any,
    marks: Any,
    counts: Any,
    bad: Any,
) -> None:
    """Elements ``lo`` to ``hi``. ``counts`` gets the marks per tile.

    ``bad`` gets how far from the end the first NaN or infinity stands; it was 0, and stays so if there is none.
    """
    words = cuda.shared.array(MOST_THREADS, uint32)
    sums = cuda.shared.array(MOST_THREADS, int32)
    me, threads, tile = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    words[me] = 0
    cuda.syncthreads()
    start = lo + tile * threads * WORD
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
                cuda.atomic.max(bad, 0, len(out) - at)
    cuda.syncthreads()
    marks[tile * threads + me] = words[me]
    _, hits = scan(sums, cuda.popc(words[me]))
    if me == 0:
        counts[tile] = hits


@kernel("VqMLqqIV")
def take_candidates(out: Any, lo: Any, marks: Any, sums: Any, first: Any, end: Any, indices: Any, values: Any) -> None:
    """Puts what is marked into ``indices`` and ``values`` from ``first`` on, as far as there is room before ``end``.

    ``sums`` are the running sums of the counts per tile.
    """
    shared = cuda.shared.array(MOST_THREADS, int32)
    me, threads, tile = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    word = np.int64(marks[tile * threads + me])
    before, _ = scan(shared, cuda.popc(word))
    place = first + before_tile(sums, tile) + before
    start = lo + (tile * threads + me) * WORD
    while word != 0 and place < end:
        at = start + lowest_one(word)
        indices[place] = at
        values[place] = out[at]
        word &= word - 1
        place += 1
