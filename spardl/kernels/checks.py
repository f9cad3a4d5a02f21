"""What kernels check of packed indices, in the same words for all backends. They raise ValueError."""

import numpy as np
import numpy.typing as npt

OUT_OF_ORDER = "frame has indices out of order, or beyond its block"  # as csrc/frame.hpp has it


def require_increasing(increasing: bool, base: int) -> None:
    """For those who pack."""
    if not increasing:
        raise ValueError(f"expected strictly increasing indices from {base} on, got some out of order or twice")


def require_words(words: int, count: int, bits: int) -> None:
    """For those who unpack: the low bits are all there."""
    if 64 * words < count * bits:
        raise ValueError(f"packed indices: {words} words cannot hold {count} times {bits} bits")


def require_entries(found: int, count: int) -> None:
    """And so are the high ones."""
    if found < count:
        raise ValueError(f"packed indices end after {found} of {count} entries")


def require_last(last: int, base: int, end: int, index_dtype: npt.DTypeLike) -> None:
    """All others are between the base and the last one; sums that are far too large have become negative."""
    require_within(base <= last < min(end, int(np.iinfo(index_dtype).max) + 1), end)


def require_within(within: bool, end: int) -> None:
    if not within:
        raise ValueError(f"packed indices reach beyond their block, which ends at {end}")
