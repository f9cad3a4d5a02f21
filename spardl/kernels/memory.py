"""Short-lived arrays from memory that is used again.

Above 128 KiB malloc takes fresh pages from the operating system every time, and those cost more than what is done with
them. The compiled kernels keep a pool; without them this is plain NumPy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from spardl.kernels import _native
except ImportError:
    _native = None  # type: ignore[assignment]


def empty(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Like ``np.empty``."""
    if _native is None:
        return np.empty(count, dtype)
    kind = np.dtype(dtype)
    return _native.empty(count * kind.itemsize).view(kind)


def zeros(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Like ``np.zeros``."""
    array = empty(count, dtype)
    array.fill(0)
    return array


def concatenate(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Like ``np.concatenate``, for one-dimensional arrays of one dtype."""
    return np.concatenate(parts, out=empty(sum(map(len, parts)), parts[0].dtype))
