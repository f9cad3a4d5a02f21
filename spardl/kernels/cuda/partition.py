"""The k largest from the rest, both in order, once the cut between them is known.

Keys above the cut belong to the k largest, and of those equal to it the first ``TIES``. Both are marked per tile; sums
over the tiles before then tell every entry its place.
"""

from typing import Any

import numpy as np
from numba import int32, uint32

from spardl.kernels.cuda.block import before_tile, lowest_one, scan
from spardl.kernels.cuda.cut import BEGIN, COLUMNS, KEY, LARGEST, STATES, TIES, TOP, tile_begin
from spardl.kernels.cuda.jit import MOST_THREADS, WORD, cuda, device, kernel
from spardl.kernels.cuda.segments import FIRST_TILE, before_in_segment, place_in_segment, segment_of


@kernel("BqLLLMML")
def mark_cut(
    bits: Any, magnitude: Any, table: Any, lengths: Any, state: Any, above: Any, equal: Any, counts: Any
) -> None:
    """A bit per key; ``counts`` gets the marks above per tile, and behind those the marks equal."""
    above_words = cuda.shared.array(MOST_THREADS, uint32)
    equal_words = cuda.shared.array(MOST_THREADS, uint32)
    sums = cuda.shared.array(MOST_THREADS, int32)
    me, threads, tile = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    above_words[me] = 0
    equal_words[me] = 0
    cuda.syncthreads()
    segment = segment_of(table, COLUMNS, tile)
    row = segment * COLUMNS
    cut = state[segment * STATES + KEY]
    start = table[row + BEGIN] + tile_begin(table, row)
    end = table[row + BEGIN] + lengths[segment]
    for step in range(WORD):
        place = step * threads + me
        at = start + place
        if at < end:
            key = bits[at] & magnitude
            if key > cut:
                cuda.atomic.or_(above_words, place // WORD, uint32(1 << (place % WORD)))
            elif key == cut:
                cuda.atomic.or_(equal_words, place // WORD, uint32(1 << (place % WORD)))
    cuda.syncthreads()
    above[tile * threads + me] = above_words[me]
    equal[tile * threads + me] = equal_words[me]
    _, count_above = scan(sums, cuda.popc(above_words[me]))
    _, count_equal = scan(sums, cuda.popc(equal_words[me]))
    if me == 0:
        counts[tile] = count_above
        counts[cuda.gridDim.x + tile] = count_equal


@device
def wanted_ties(state: Any, segment: Any) -> Any:
    """How many keys equal to the cut are taken. Zeros never are."""
    if state[segment * STATES + KEY] == 0:
        return 0
    return state[segment * STATES + TIES]


@device
def before_me(table: Any, row: Any, shared: Any, above: Any, equal: Any, sums: Any) -> Any:
    """How many of the segment's keys are above and equal to the cut before this thread's."""
    tile, tiles = cuda.blockIdx.x, cuda.gridDim.x
    word = tile * cuda.blockDim.x + cuda.threadIdx.x
    higher, _ = scan(shared, cuda.popc(above[word]))
    same, _ = scan(shared, cuda.popc(equal[word]))
    higher += before_in_segment(table, row, sums, tile)
    same += before_tile(sums, tiles + tile) - before_tile(sums, tiles + table[row + FIRST_TILE])
    return higher, same


@kernel("IqVBqLMMLLIV")
def take_largest(
    indices: Any,
    base: Any,
    values: Any,
    bits: Any,
    magnitude: Any,
    table: Any,
    above: Any,
    equal: Any,
    sums: Any,
    state: Any,
    top_indices: Any,
    top_values: Any,
) -> None:
    """The k largest. Without ``indices`` element i has index ``base`` + i."""
    shared = cuda.shared.array(MOST_THREADS, int32)
    segment = segment_of(table, COLUMNS, cuda.blockIdx.x)
    row = segment * COLUMNS
    higher, same = before_me(table, row, shared, above, equal, sums)
    ties = wanted_ties(state, segment)
    me = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    higher_word = np.int64(above[me])
    word = higher_word | np.int64(equal[me])
    start = table[row + BEGIN] + place_in_segment(table, row) * WORD
    higher += table[row + TOP]
    largest = np.int64(0)
    while word != 0:
        bit = lowest_one(word)
        word &= word - 1
        is_above = (higher_word >> bit) & 1
        if is_above == 1 or same < ties:
            at = start + bit
            place = higher + min(same, ties)
            top_indices[place] = indices[at] if len(indices) > 0 else base + at
            top_values[place] = values[at]
            largest = max(largest, np.int64(bits[at] & magnitude))
        higher += is_above
        same += 1 - is_above
    if largest > 0:
        cuda.atomic.max(state, segment * STATES + LARGEST, largest)


@kernel("IVLLMMLLIV")
def take_rest(
    indices: Any,
    values: Any,
    table: Any,
    lengths: Any,
    above: Any,
    equal: Any,
    sums: Any,
    state: Any,
    rest_indices: Any,
    rest_values: Any,
) -> None:
    """What ``take_largest`` leaves, from where the segment itself begins."""
    shared = cuda.shared.array(MOST_THREADS, int32)
    segment = segment_of(table, COLUMNS, cuda.blockIdx.x)
    row = segment * COLUMNS
    higher, same = before_me(table, row, shared, above, equal, sums)
    ties = wanted_ties(state, segment)
    me = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    higher_word, same_word = np.int64(above[me]), np.int64(equal[me])
    start = table[row + BEGIN] + place_in_segment(table, row) * WORD
    end = table[row + BEGIN] + lengths[segment]
    for bit in range(WORD):
        at = start + bit
        is_above, is_equal = (higher_word >> bit) & 1, (same_word >> bit) & 1
        if at < end and is_above == 0 and not (is_equal == 1 and same < ties):
            place = at - higher - min(same, ties)
            rest_indices[place] = indices[at]
            rest_values[place] = values[at]
        higher += is_above
        same += is_equal
