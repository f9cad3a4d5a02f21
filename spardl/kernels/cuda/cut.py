"""Where the k largest begin: radix select on the values' bits, which sort like magnitudes once the sign is off.

Digit by digit from the top, each pass counts in shared memory how many of the keys that share what is known so far have
which next digit, and a single block then finds the digit that the k-th largest has. All that is known stays on the
device (``state``), so no pass waits for the host. Counts are integers: in which order they are added is all the same.
Every segment has a k, a state and counts of its own.
"""

from typing import Any

from numba import int32, int64

from spardl.kernels.cuda.block import scan
from spardl.kernels.cuda.jit import MOST_DIGITS, MOST_THREADS, WORD, cuda, device, kernel
from spardl.kernels.cuda.segments import place_in_segment, segment_of

# Columns of the table: where a segment's keys begin, how many are wanted, and where those are to go. How many keys it
# has stands in an array of its own, ``lengths``: what was merged on the device is counted there.
BEGIN, WANTED, TOP = 2, 3, 4
COLUMNS = 5

# The places of ``state``, an int64 array, for each segment. KEY: of the k-th largest, as far as it is known. TIES: its
# rank among the keys that share that; in the end, how many of those equal to it are taken. LARGEST: the largest key
# that was.
KEY, TIES, LARGEST = 0, 1, 2
STATES = 3


@device
def tile_begin(table: Any, row: Any) -> Any:
    """How many of the segment's keys are before this tile."""
    return (place_in_segment(table, row) - cuda.threadIdx.x) * WORD


@kernel("BqqqLLLL")
def count_digits(
    bits: Any, magnitude: Any, open_bits: Any, left_open: Any, table: Any, lengths: Any, state: Any, digits: Any
) -> None:
    """``digits`` gets how often each digit occurs: the bits from ``left_open`` to ``open_bits`` of a key."""
    counts = cuda.shared.array(MOST_DIGITS, int32)
    me, threads = cuda.threadIdx.x, cuda.blockDim.x
    last = (1 << (open_bits - left_open)) - 1
    for bucket in range(me, last + 1, threads):
        counts[bucket] = 0
    cuda.syncthreads()
    segment = segment_of(table, COLUMNS, cuda.blockIdx.x)
    row = segment * COLUMNS
    known = state[segment * STATES + KEY]
    first = tile_begin(table, row)
    end = table[row + BEGIN] + min(first + threads * WORD, lengths[segment])
    for at in range(table[row + BEGIN] + first + me, end, threads):
        key = bits[at] & magnitude
        if key >> open_bits == known:
            cuda.atomic.add(counts, (key >> left_open) & last, 1)
    cuda.syncthreads()
    own = segment * (len(digits) // len(lengths))
    for bucket in range(me, last + 1, threads):
        if counts[bucket] > 0:
            cuda.atomic.add(digits, own + bucket, counts[bucket])


@kernel("qqLLLL")
def find_digit(digit_bits: Any, is_first: Any, table: Any, lengths: Any, digits: Any, state: Any) -> None:
    """A block per segment: appends the digit of the k-th largest to what is known of its key."""
    sums = cuda.shared.array(MOST_THREADS, int64)
    me, threads, segment = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    of, own_digits = segment * STATES, segment * (len(digits) // len(lengths))
    buckets = 1 << digit_bits
    each = (buckets + threads - 1) // threads
    top = buckets - 1 - me * each  # from the largest digit down
    own = 0
    for bucket in range(top, max(top - each, -1), -1):
        own += digits[own_digits + bucket]
    rank = state[of + TIES]
    if is_first != 0:
        rank = min(table[segment * COLUMNS + WANTED], lengths[segment])
    known = state[of + KEY]
    before, _ = scan(sums, own)  # all have read the state when this returns
    if before < rank and rank <= before + own:
        rank -= before
        digit = top
        while digits[own_digits + digit] < rank:
            rank -= digits[own_digits + digit]
            digit -= 1
        state[of + KEY] = (known << digit_bits) | digit
        state[of + TIES] = rank
    if rank == 0 and me == 0:  # nothing is wanted: nothing is above a key of ones, and none of its ties is taken
        state[of + KEY] = (known << digit_bits) | (buckets - 1)
