"""Indices ⇄ bit streams on the device (the format: ``Kernels.pack``). A thread makes a whole word, or a whole index."""

from typing import Any

import numpy as np

from spardl.kernels.cuda.block import before_tile, lowest_one
from spardl.kernels.cuda.jit import WORD, cuda, device, kernel


@device
def gap_before(indices: Any, base: Any, at: Any) -> Any:
    if at == 0:
        return np.int64(indices[0]) - base
    return np.int64(indices[at]) - np.int64(indices[at - 1]) - 1


@kernel("IqqL")
def unary_lengths(indices: Any, base: Any, bits: Any, lengths: Any) -> None:
    """How many bits every entry takes in the second stream."""
    at = cuda.grid(1)
    if at < len(indices):
        lengths[at] = (gap_before(indices, base, at) >> bits) + 1


@kernel("IqqW")
def pack_low(indices: Any, base: Any, bits: Any, low: Any) -> None:
    """A thread per word: it has parts of up to 64 / bits + 2 entries."""
    me = cuda.grid(1)
    if me >= len(low):
        return
    word = np.uint64(0)
    first_bit = 64 * me
    at = first_bit // bits
    while at < len(indices) and at * bits < first_bit + 64:
        rest = np.uint64(gap_before(indices, base, at) & ((np.int64(1) << bits) - 1))
        shift = at * bits - first_bit
        if shift >= 0:
            word |= rest << np.uint64(shift)
        else:
            word |= rest >> np.uint64(-shift)
        at += 1
    low[me] = word


@kernel("LW")
def pack_high(ends: Any, high: Any) -> None:
    """A thread per word. Entry i's one is the last of its bits, just before ``ends[i]``, the running sum of lengths."""
    me = cuda.grid(1)
    if me >= len(high):
        return
    first_bit = 64 * me
    low, up = 0, len(ends)
    while low < up:
        middle = (low + up) // 2
        if ends[middle] <= first_bit:
            low = middle + 1
        else:
            up = middle
    word = np.uint64(0)
    while low < len(ends) and ends[low] <= first_bit + 64:
        word |= np.uint64(1) << np.uint64(ends[low] - 1 - first_bit)
        low += 1
    high[me] = word


@kernel("ML")
def count_ones(words: Any, counts: Any) -> None:
    at = cuda.grid(1)
    if at < len(words):
        counts[at] = cuda.popc(words[at])


@kernel("MLL")
def place_ones(words: Any, sums: Any, places: Any) -> None:
    """Where the ones stand, as many as ``places`` has room for; ``sums`` are the running sums of ones per word."""
    me = cuda.grid(1)
    if me >= len(words):
        return
    word = np.int64(words[me])
    n = before_tile(sums, me)
    while word != 0 and n < len(places):
        places[n] = me * WORD + lowest_one(word)
        word &= word - 1
        n += 1


@kernel("WqL")
def read_low(low: Any, bits: Any, rests: Any) -> None:
    """The low bits of every gap."""
    at = cuda.grid(1)
    if at >= len(rests):
        return
    word, offset = (at * bits) // 64, (at * bits) % 64
    rest = low[word] >> np.uint64(offset)
    if offset + bits > 64:
        rest |= low[word + 1] << np.uint64(64 - offset)
    rests[at] = np.int64(rest & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)))


@kernel("LLqqI")
def join_gaps(places: Any, rest_sums: Any, base: Any, bits: Any, indices: Any) -> None:
    """An index is the base, the entries before it, and all gaps up to it: their high parts and their low bits."""
    at = cuda.grid(1)
    if at < len(indices):
        indices[at] = base + at + ((places[at] - at) << bits) + rest_sums[at]
