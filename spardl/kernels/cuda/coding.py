"""Indices ⇄ bit streams on the device (the format: ``Kernels.pack``). A thread makes a whole word, or a whole index."""

from typing import Any

import numpy as np
from numba import int64

from spardl.kernels.cuda.block import before_tile, lowest_one, scan
from spardl.kernels.cuda.jit import MOST_THREADS, WORD, cuda, device, kernel
from spardl.kernels.cuda.segments import place_in_segment, segment_of

# Columns of the table: where a segment begins in what is read and in what is written, for how many threads there is
# something to do, how many entries there are, and how they are coded; and what no index reaches that is read.
BEGIN, OUT, LENGTH, COUNT, BASE, BITS, END = 2, 3, 4, 5, 6, 7, 8
COLUMNS = 9


@device
def row_of(table: Any) -> Any:
    """Where the row of this block's segment begins."""
    return segment_of(table, COLUMNS, cuda.blockIdx.x) * COLUMNS


@device
def gap_before(table: Any, row: Any, indices: Any, at: Any) -> Any:
    index = np.int64(indices[table[row + BEGIN] + at])
    if at == 0:
        return index - table[row + BASE]
    return index - np.int64(indices[table[row + BEGIN] + at - 1]) - 1


@kernel("LILL")
def unary_lengths(table: Any, indices: Any, lengths: Any, totals: Any) -> None:
    """How many bits every entry takes in the second stream, and all entries of a segment together."""
    shared = cuda.shared.array(MOST_THREADS, int64)
    row = row_of(table)
    at = place_in_segment(table, row)
    own = 0
    if at < table[row + LENGTH]:
        own = (gap_before(table, row, indices, at) >> table[row + BITS]) + 1
        lengths[table[row + OUT] + at] = own
    _, total = scan(shared, own)
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(totals, row // COLUMNS, total)


@kernel("LIW")
def pack_low(table: Any, indices: Any, low: Any) -> None:
    """A thread per word: it has parts of up to 64 / bits + 2 entries."""
    row = row_of(table)
    me = place_in_segment(table, row)
    if me >= table[row + LENGTH]:
        return
    word = np.uint64(0)
    bits, count = table[row + BITS], table[row + COUNT]
    first_bit = 64 * me
    at = first_bit // bits
    while at < count and at * bits < first_bit + 64:
        rest = np.uint64(gap_before(table, row, indices, at) & ((np.int64(1) << bits) - 1))
        shift = at * bits - first_bit
        if shift >= 0:
            word |= rest << np.uint64(shift)
        else:
            word |= rest >> np.uint64(-shift)
        at += 1
    low[table[row + OUT] + me] = word


@kernel("LLW")
def pack_high(table: Any, ends: Any, high: Any) -> None:
    """A thread per word. Entry i's one is the last of its bits, just before ``ends[i]``, the running sum of lengths."""
    row = row_of(table)
    me = place_in_segment(table, row)
    if me >= table[row + LENGTH]:
        return
    low = table[row + BEGIN]
    end = up = low + table[row + COUNT]
    first_bit = 64 * me + before_tile(ends, low)
    while low < up:
        middle = (low + up) // 2
        if ends[middle] <= first_bit:
            low = middle + 1
        else:
            up = middle
    word = np.uint64(0)
    while low < end and ends[low] <= first_bit + 64:
        word |= np.uint64(1) << np.uint64(ends[low] - 1 - first_bit)
        low += 1
    high[table[row + OUT] + me] = word


@kernel("ML")
def count_ones(words: Any, counts: Any) -> None:
    at = cuda.grid(1)
    if at < len(words):
        counts[at] = cuda.popc(words[at])


@kernel("LMLLL")
def place_ones(table: Any, words: Any, sums: Any, places: Any, found: Any) -> None:
    """Where a segment's ones stand, as many as there are entries; ``sums`` are the running sums of ones per word.

    ``found`` gets how many ones a segment has.
    """
    row = row_of(table)
    me = place_in_segment(table, row)
    if me >= table[row + LENGTH]:
        return
    at = table[row + BEGIN] + me
    word = np.int64(words[at])
    n = before_tile(sums, at) - before_tile(sums, table[row + BEGIN])
    if me + 1 == table[row + LENGTH]:
        found[row // COLUMNS] = n + cuda.popc(word)
    out, count = table[row + OUT], table[row + COUNT]
    while word != 0 and n < count:
        places[out + n] = me * WORD + lowest_one(word)
        word &= word - 1
        n += 1


@kernel("LWL")
def read_low(table: Any, low: Any, rests: Any) -> None:
    """The low bits of every gap."""
    row = row_of(table)
    at = place_in_segment(table, row)
    if at >= table[row + LENGTH]:
        return
    bits = table[row + BITS]
    rest = np.uint64(0)
    if bits > 0:
        word, offset = table[row + BEGIN] + (at * bits) // 64, (at * bits) % 64
        rest = low[word] >> np.uint64(offset)
        if offset + bits > 64:
            rest |= low[word + 1] << np.uint64(64 - offset)
        rest &= (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    rests[table[row + OUT] + at] = np.int64(rest)


@kernel("LLLIL")
def join_gaps(table: Any, places: Any, rest_sums: Any, indices: Any, beyond: Any) -> None:
    """An index is the base, the entries before it, and all gaps up to it: their high parts and their low bits.

    ``beyond`` becomes 1 for a segment with an index that is not below its end.
    """
    row = row_of(table)
    at = place_in_segment(table, row)
    if at < table[row + LENGTH]:
        out = table[row + OUT]
        rests = rest_sums[out + at] - before_tile(rest_sums, out)
        index = table[row + BASE] + at + ((places[out + at] - at) << table[row + BITS]) + rests
        if table[row + BASE] <= index < table[row + END]:
            indices[out + at] = index
        else:
            beyond[row // COLUMNS] = 1
