"""Sparse blocks ⇄ bytes.

A *frame* is one block, self-describing: a 40-byte header, the indices, the values; each part padded to 8 bytes.
A *message* is what one round sends: the number of frames, their lengths, the frames. Indices are stored relative to the
block's start, raw (4 bytes, or 8 in blocks past 2**31) or packed (``Kernels.pack``: at 1 % about one byte). A block may
also be written dense: the values of all its elements, and no indices.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl.effects import Bytes
from spardl.errors import WireError
from spardl.kernels import memory
from spardl.kernels.api import Indices, Kernels, Values
from spardl.sparse import index_dtype

INDEX_CODINGS = ("auto", "raw", "packed")
VALUE_CODINGS = ("same", "bf16", "fp16")

_HEADER = struct.Struct(
    "<4sBBBBqqqq"
)  # magic, dtype, value coding, index coding, bits; count, base, length, high words
_MAGIC = b"SPv1"
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_RAW, _PACKED, _DENSE = 0, 1, 2
_NARROW, _WIDE, _WORD = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64)


class Block(NamedTuple):
    """A decoded frame: entries of the elements ``base`` to ``base + length``."""

    base: int
    length: int
    indices: Indices
    values: Values


@dataclass(frozen=True, slots=True)
class Codec:
    """How blocks are written. Reading needs none of the choices: frames say what they are."""

    kernels: Kernels
    indices: str = "auto"
    values: str = "same"

    def round(self, values: Values) -> tuple[Values, Values | None]:
        """What ``values`` become on the wire, and the error of that (None when they stay exact)."""
        if self.values == "same":
            return values, None
        arrays = self.kernels.arrays
        (values,) = arrays.to_host(values)
        rounded = _widen(_narrow(values, self.values), self.values, values.dtype)
        return arrays.from_host(rounded), arrays.from_host(values - rounded)

    def encode(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame. ``values`` are written as they are after ``round``."""
        count, arrays = len(indices), self.kernels.arrays
        span = int(arrays.to_host(indices[count - 1 :])[0][0]) - base + 1 if count else 0
        bits = rice_bits(span, count)
        if self.indices == "packed" or (self.indices == "auto" and _packed_bytes(span, count, bits) < count * 4):
            coding = _PACKED
            *index_parts, values = arrays.to_host(*self.kernels.pack(indices, base, bits), values)
            high_words = len(index_parts[1])
        else:
            coding, bits, high_words = _RAW, 0, 0
            indices, values = arrays.to_host(indices, values)
            index_parts = [(indices - indices.dtype.type(base)).astype(index_dtype(length), copy=False)]
        return self._frame(index_parts, values, (coding, bits), (count, base, length, high_words))

    def encode_shorter(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame, sparse or dense, whichever is shorter. A dense block comes back with all its elements."""
        sparse = self.encode(indices, values, base, length)
        width = values.itemsize if self.values == "same" else 2
        if len(sparse) <= dense_frame_bytes(length, width):
            return sparse
        dense = memory.zeros(length, values.dtype)
        dense[indices - indices.dtype.type(base)] = values
        return self._frame([], dense, (_DENSE, 0), (length, base, length, 0))

    def _frame(
        self, index_parts: list[npt.NDArray[Any]], values: Values, coding: tuple[int, int], sizes: tuple[int, ...]
    ) -> Bytes:
        codes = (_DTYPES.index(values.dtype), VALUE_CODINGS.index(self.values), *coding)
        payload = values if self.values == "same" else _narrow(values, self.values)
        header = np.frombuffer(_HEADER.pack(_MAGIC, *codes, *sizes), np.uint8)
        return memory.concatenate([header, *map(_padded, [*index_parts, payload])])

    def decode(self, frame: Bytes, wide_indices: bool) -> Block:
        """The block in ``frame``; indices as int64 if ``wide_indices``, else int32."""
        if len(frame) < _HEADER.size:
            raise WireError(f"frame of {len(frame)} bytes is shorter than its header")
        magic, dtype_code, value_code, coding, bits, count, base, length, high_words = _HEADER.unpack_from(frame.data)
        if magic != _MAGIC:
            raise WireError(f"frame starts with {magic!r}, expected {_MAGIC!r}: do all ranks run the same spardl?")
        dtype = _DTYPES[dtype_code]
        wanted, arrays = _WIDE if wide_indices else _NARROW, self.kernels.arrays
        reader = _Reader(frame, _HEADER.size)
        if coding == _PACKED:
            low = reader.take(-(-count * bits // 64), _WORD)
            high = reader.take(high_words, _WORD)
            indices = self.kernels.unpack(arrays.from_host(low), arrays.from_host(high), count, base, bits, wanted)
        elif coding == _DENSE:
            indices = arrays.from_host(np.arange(base, base + count, dtype=wanted))
        else:
            relative = reader.take(count, index_dtype(length))
            indices = arrays.from_host(relative.astype(wanted) if base == 0 else relative + wanted.type(base))
        if value_code == 0:
            values = reader.take(count, dtype)
        else:
            values = _widen(reader.take(count, np.dtype(np.uint16)), VALUE_CODINGS[value_code], dtype)
        return Block(base, length, indices, arrays.from_host(values))


def rice_bits(span: int, count: int) -> int:
    """How many low bits of a gap to store as they are: log₂ of 0.69 × the mean gap, best for geometric gaps."""
    mean = span // count if count else 0
    return min(57, max(0, (mean * 89 // 128).bit_length() - 1))


def _packed_bytes(span: int, count: int, bits: int) -> int:
    return 8 * (-(-count * bits // 64) + -(-(count + (span >> bits)) // 64))


def frame_bytes(count: int, length: int, itemsize: int, indices: str = "auto") -> int:
    """How long the frame of ``count`` entries spread over ``length`` elements is; packed ones to about 1 %."""
    raw = _pad(count * index_dtype(length).itemsize)
    span = -(-length * count // (count + 1))  # up to the last index, at random
    packed = _packed_bytes(span, count, rice_bits(span, count))
    chosen = {"raw": raw, "packed": packed, "auto": packed if packed < count * 4 else raw}[indices]
    return _HEADER.size + chosen + _pad(count * itemsize)


def dense_frame_bytes(length: int, itemsize: int) -> int:
    """How long the frame of all of a block's elements is."""
    return _HEADER.size + _pad(length * itemsize)


class _Reader:
    """Takes arrays off a frame without copying; every part is padded to 8 bytes."""

    def __init__(self, frame: Bytes, offset: int) -> None:
        self._frame, self._offset = frame, offset

    def take(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        end = self._offset + count * dtype.itemsize
        if end > len(self._frame):
            raise WireError(f"frame of {len(self._frame)} bytes ends inside a part that reaches to byte {end}")
        part = self._frame[self._offset : end].view(dtype)
        self._offset = _pad(end)
        return part


def join(frames: Sequence[Bytes]) -> list[Bytes]:
    """Frames as one message, in parts: the runtime copies them into place."""
    lengths = np.array([len(frames), *map(len, frames)], np.int64)
    return [lengths.view(np.uint8), *frames]


def table_bytes(frames: int) -> int:
    """How much a message adds to its frames."""
    return 8 * (1 + frames)


def split(message: Bytes, expected: int) -> list[Bytes]:
    """The frames of a message, as views; there must be ``expected`` of them."""
    table = table_bytes(expected)
    count, *lengths = message[:table].view(np.int64).tolist() if len(message) >= table else [-1]
    ends = list(accumulate(lengths, initial=table))
    if count != expected or ends[-1] != len(message):
        raise WireError(f"expected a message of {expected} frames, got {len(message)} bytes that are not")
    return [message[begin:end] for begin, end in pairwise(ends)]


def _pad(size: int) -> int:
    return -(-size // 8) * 8


def _padded(part: npt.NDArray[Any]) -> Bytes:
    """As bytes, with zeros after them where the next part would not be aligned."""
    raw = part.view(np.uint8)
    missing = -len(raw) % 8
    return np.concatenate([raw, np.zeros(missing, np.uint8)]) if missing else raw


def _narrow(values: Values, coding: str) -> npt.NDArray[np.uint16]:
    """Nearest 16-bit number, ties to even; what would overflow becomes the largest finite one."""
    largest = _LARGEST[coding]
    single = np.clip(values, -largest, largest).astype(np.float32, copy=False)
    if coding == "fp16":
        return single.astype(np.float16).view(np.uint16)
    bits = single.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)


_LARGEST = {"fp16": float(np.finfo(np.float16).max), "bf16": float(np.uint32(0x7F7F0000).view(np.float32))}


def _widen(codes: npt.NDArray[np.uint16], coding: str, dtype: np.dtype[Any]) -> Values:
    if coding == "fp16":
        return codes.view(np.float16).astype(dtype)
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(dtype, copy=False)
