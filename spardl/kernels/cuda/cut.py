"""Where the k largest begin: radix select on the values' bits, which sort like magnitudes once the sign is off.

Digit by digit from the top, each pass counts in shared memory how many of the keys that share what is known so far have
which next digit, and a single block then finds the digit that the k-th largest has. All that is known stays on the
device (``state``), so no pass waits for the host. Counts are integers: in which order they are added is all the same.
"""

from typing import Any

from numba import int32, int64

from spardl.kernels.cuda.block import scan
from spardl.kernels.cuda.jit import MOST_DIGITS, MOST_THREADS, cuda, kernel

# The places of ``state``, an int64 array. KEY: of the k-th largest, as far as it is known. TIES: its rank among the
# keys that share that; in the end, how many of those equal to it are taken. LARGEST: the largest key that was.
KEY, TIES, LARGEST = 0, 1, 2
STATES = 3


@kernel("BqqqLL")
def count_digits(bits: Any, magnitude: Any, open_bits: Any, left_open: Any, state: Any, table: Any) -> None:
    """``table`` gets how often each digit occurs: the bits from ``left_open`` to ``open_bits`` of a key."""
    counts = cuda.shared.array(MOST_DIGITS, int32)
    me, threads = cuda.threadIdx.x, cuda.blockDim.x
    last = (1 << (open_bits - left_open)) - 1
    for bucket in range(me, last + 1, threads):
        counts[bucket] = 0
    cuda.syncthreads()
    known = state[KEY]
    for at in range(cuda.blockIdx.x * threads + me, len(bits), threads * cuda.gridDim.x):
        key = bits[at] & magnitude
        if key >> open_bits == known:
            cuda.atomic.add(counts, (key >> left_open) & last, 1)
    cuda.syncthreads()
    for bucket in range(me, last + 1, threads):
        if counts[bucket] > 0:
            cuda.atomic.add(table, bucket, counts[bucket])


@kernel("qqLL")
def find_digit(digit_bits: Any, first_rank: Any, table: Any, state: Any) -> None:
    """One block: appends the digit of the k-th largest to what is known of its key; ``first_rank`` is k at first."""
    sums = cuda.shared.array(MOST_THREADS, int64)
    me, threads = cuda.threadIdx.x, cuda.blockDim.x
    buckets = 1 << digit_bits
    each = (buckets + threads - 1) // threads
    top = buckets - 1 - me * each  # from the largest digit down
    own = 0
    for bucket in range(top, max(top - each, -1), -1):
        own += table[bucket]
    rank = first_rank if first_rank > 0 else state[TIES]
    known = state[KEY]
    before, _ = scan(sums, own)  # all have read the state when this returns
    if before < rank and rank <= before + own:
        rank -= before
        digit = top
        while table[digit] < rank:
            rank -= table[digit]
            digit -= 1
        state[KEY] = (known << digit_bits) | digit
        state[TIES] = rank
