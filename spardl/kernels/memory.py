"""Short-lived arrays from memory that is used again.

Above 128 KiB malloc takes fresh pages from the operating system every time, and those cost more than what is done with
them. The compiled kernels keep a pool; without them this is plain NumPy.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels import half
from spardl.kernels.api import Messages, Stored
from spardl.kernels.checks import OUT_OF_ORDER

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
    if _native is not None:
        return _native.concatenate(parts)
    return np.concatenate(parts, out=empty(sum(map(len, parts)), parts[0].dtype))


# Large arrays begin at the same place of a huge page, so that going through several side by side is likely to ask for
# different rows of one memory bank. Arrays that are gone through together begin in different places: bytes, in turn.
_LARGE = 4 << 20
_skews = itertools.cycle((256 << 10, 512 << 10))


class HostMessages:
    """See ``spardl.kernels.api.Messages``: here they are arrays of uint8."""

    def load(self, *arrays: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        return arrays

    def unload(self, frames: Sequence[npt.NDArray[np.uint8]]) -> Sequence[npt.NDArray[np.uint8]]:
        return frames

    def frame(self, header: npt.NDArray[np.uint8], parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
        return concatenate([header, *map(_padded, parts)])

    def seal(self, parts: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
        return concatenate(parts)

    def inbox(self, count: int) -> npt.NDArray[np.uint8]:
        return np.empty(count, np.uint8) if _native is None else _native.empty(count)

    def handle(self, message: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return message

    def opened(self, message: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        message.setflags(write=False)
        return message


def _padded(part: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    raw = part.view(np.uint8)
    missing = -len(raw) % 8
    return np.concatenate([raw, np.zeros(missing, np.uint8)]) if missing else raw


class HostArrays:
    """See ``spardl.kernels.api.Arrays``: here they are NumPy's."""

    messages: Messages = HostMessages()
    narrow, widen = staticmethod(half.narrow), staticmethod(half.widen)

    empty, zeros, concatenate = staticmethod(empty), staticmethod(zeros), staticmethod(concatenate)

    def lasting(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        kind = np.dtype(dtype)
        skew = next(_skews) // kind.itemsize if count * kind.itemsize >= _LARGE else 0
        array = np.empty(count + skew, kind)[skew:]
        array.fill(0)  # not np.zeros: calloc'ed memory lacks huge pages, which costs 10 % of the pass
        return array

    def to_host(self, *arrays: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        return arrays

    def from_host(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array

    def assign(self, dense: npt.NDArray[Any], host: npt.NDArray[Any]) -> None:
        np.copyto(dense, host)

    def divide(self, values: npt.NDArray[Any], divisor: int) -> npt.NDArray[Any]:
        quotients: npt.NDArray[Any] = values / values.dtype.type(divisor)
        return quotients

    def subtract(self, values: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
        differences: npt.NDArray[Any] = values - others
        return differences

    def shift(self, indices: npt.NDArray[Any], by: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        if indices.dtype == dtype:
            shifted: npt.NDArray[Any] = indices + indices.dtype.type(by)
        else:
            shifted = np.add(indices, by, dtype=np.int64).astype(dtype, copy=False)
        return shifted

    def place_many(self, blocks: Sequence[Stored], dtype: npt.DTypeLike) -> list[npt.NDArray[Any]]:
        return [self._placed(*block, dtype) for block in blocks]

    def _placed(self, stored: npt.NDArray[Any], base: int, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        if len(stored) == 0:
            return self.empty(0, dtype)
        if not (stored[0] >= 0 and stored[-1] < length and np.all(stored[1:] > stored[:-1])):
            raise ValueError(OUT_OF_ORDER)
        return self.shift(stored, base, dtype)

    def all_finite(self, values: npt.NDArray[Any]) -> bool:
        return bool(np.isfinite(values).all())

    def count_nonzero(self, values: npt.NDArray[Any]) -> int:
        return int(np.count_nonzero(values))

    def clear_at(self, dense: npt.NDArray[Any], indices: npt.NDArray[Any]) -> None:
        dense[indices] = 0

    def write_mean(
        self, dense: npt.NDArray[Any], indices: npt.NDArray[Any], values: npt.NDArray[Any], ranks: int, scale: float
    ) -> None:
        kind = dense.dtype.type
        dense.fill(0)
        dense[indices] = values / kind(ranks) * kind(scale)

    def adopt(self, array: Any, call: str, name: str, stream: int | None) -> npt.NDArray[Any]:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{call}: expected {name} to be a numpy array, got {type(array).__name__}")
        return array


HOST = HostArrays()
