"""What happens to every value alone."""

from typing import Any

import numpy as np
from numba import int32

from spardl.kernels.cuda.block import scan
from spardl.kernels.cuda.jit import MOST_THREADS, cuda, kernel


@kernel("VvV")
def divide(values: Any, divisor: Any, out: Any) -> None:
    at = cuda.grid(1)
    if at < len(values):
        out[at] = values[at] / divisor


@kernel("VVV")
def subtract(values: Any, others: Any, out: Any) -> None:
    at = cuda.grid(1)
    if at < len(values):
        out[at] = values[at] - others[at]


@kernel("IqI")
def shift(indices: Any, by: Any, out: Any) -> None:
    at = cuda.grid(1)
    if at < len(indices):
        out[at] = indices[at] + by


@kernel("IqqIL")
def place(stored: Any, base: Any, length: Any, out: Any, bad: Any) -> None:
    """``bad`` becomes 1 unless what is stored increases strictly and is below ``length``."""
    at = cuda.grid(1)
    if at < len(stored):
        own = np.int64(stored[at])
        before = np.int64(-1)
        if at > 0:
            before = np.int64(stored[at - 1])
        if before < own < length:
            out[at] = own + base
        else:
            bad[0] = 1


@kernel("VvL")
def find_non_finite(values: Any, infinity: Any, bad: Any) -> None:
    """``bad`` becomes 1 if a value is NaN or infinite. All who write there write the same."""
    at = cuda.grid(1)
    if at < len(values) and not abs(values[at]) < infinity:
        bad[0] = 1


@kernel("VL")
def count_non_zero(values: Any, count: Any) -> None:
    shared = cuda.shared.array(MOST_THREADS, int32)
    at = cuda.grid(1)
    own = 0
    if at < len(values) and values[at] != 0:
        own = 1
    _, total = scan(shared, own)
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, total)
