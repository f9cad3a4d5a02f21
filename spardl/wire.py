"""Sparse blocks ⇄ bytes.

A *frame* is one block, self-describing: a 40-byte header, the indices, the values; each part padded to 8 bytes.
A *message* is what one round sends: the number of frames, their lengths, the frames. Indices are stored relative to the
block's start, raw (4 bytes, or 8 in blocks past 2**31) or packed (``Kernels.pack``: at 1 % about one byte). A block may
also be written dense: the values of all its elements, and no indices.

csrc/frame.hpp writes and reads the same frames, for kernels that are compiled; here they are put together from parts.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl.effects import FRONT_BYTES, Bytes, Draft, front_of, fronts
from spardl.errors import WireError
from spardl.kernels import memory
from spardl.kernels.api import Indices, Kernels, Pair, Values
from spardl.sparse import index_dtype

INDEX_CODINGS = ("auto", "raw", "packed")
VALUE_CODINGS = ("same", "bf16", "fp16")

_HEADER = struct.Struct(
    "<4sBBBBqqqq"
)  # magic, dtype, value coding, index coding, bits; count, base, length, high words
_MAGIC = b"SPv1"
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_RAW, _PACKED, _DENSE = 0, 1, 2
_NOT_PACKED = -1  # in place of a number of bits
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
        rounded = arrays.widen(arrays.narrow(values, self.values), self.values, values.dtype)
        return rounded, arrays.subtract(values, rounded)

    def encode(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame. ``values`` are written as they are after ``round``."""
        if (compiled := self.kernels.frames) is None:
            return self._put_together([(indices, values)], [(base, length)])[0]
        return compiled.write_frame((indices, self._payload(values)), (base, length), *self._codes(values))

    def encode_message(self, vectors: Sequence[Pair], blocks: Sequence[tuple[int, int]]) -> Any:
        """A message of the frames of several blocks, given base and length of each, as a payload."""
        if (compiled := self.kernels.frames) is None or not vectors:
            return join(self._put_together(vectors, blocks))
        stored = [(indices, self._payload(values)) for indices, values in vectors]
        return Draft(compiled.write_message(stored, blocks, *self._codes(vectors[0][1]), FRONT_BYTES))

    def _codes(self, values: Values) -> tuple[str, int, int]:
        return self.indices, _DTYPES.index(values.dtype), VALUE_CODINGS.index(self.values)

    def _put_together(self, vectors: Sequence[Pair], blocks: Sequence[tuple[int, int]]) -> list[Bytes]:
        arrays = self.kernels.arrays
        bits, to_pack = [], []
        lasts = arrays.to_host(*[indices[-1:] for indices, _ in vectors])
        for (indices, _), (base, _), last in zip(vectors, blocks, lasts, strict=True):
            count = len(indices)
            span = int(last[0]) - base + 1 if count else 0
            bits.append(rice_bits(span, count))
            if self.indices == "packed" or (
                self.indices == "auto" and _packed_bytes(span, count, bits[-1]) < count * 4
            ):
                to_pack.append((indices, base, bits[-1]))
            else:
                bits[-1] = _NOT_PACKED
        packed = iter(self.kernels.pack_many(to_pack) if to_pack else ())
        headers, parts, ends = [], [], [0]
        for (indices, values), (base, length), low_bits in zip(vectors, blocks, bits, strict=True):
            if low_bits == _NOT_PACKED:
                parts.append(arrays.shift(indices, -base, index_dtype(length)))
                headers.append(self._header(values, _RAW, 0, len(indices), base, length, 0))
            else:
                low, high = next(packed)
                parts += low, high
                headers.append(self._header(values, _PACKED, low_bits, len(indices), base, length, len(high)))
            parts.append(self._payload(values))
            ends.append(len(parts))
        loaded = arrays.messages.load(*parts)  # all at once: on a GPU that is waited for
        return [
            arrays.messages.frame(header, loaded[begin:end])
            for header, (begin, end) in zip(headers, pairwise(ends), strict=True)
        ]

    def encode_shorter(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame, sparse or dense, whichever is shorter. A dense block comes back with all its elements."""
        sparse = self.encode(indices, values, base, length)
        width = values.itemsize if self.values == "same" else 2
        if len(sparse) <= dense_frame_bytes(length, width):
            return sparse
        dense = memory.zeros(length, values.dtype)
        dense[indices - indices.dtype.type(base)] = values
        messages, header = self.kernels.arrays.messages, self._header(values, _DENSE, 0, length, base, length, 0)
        frame: Bytes = messages.frame(header, messages.load(self._payload(dense)))
        return frame

    def _header(self, values: Values, coding: int, bits: int, *sizes: int) -> Bytes:
        """``sizes`` are count, base, length and high words."""
        codes = (_DTYPES.index(values.dtype), VALUE_CODINGS.index(self.values), coding, bits)
        return np.frombuffer(_HEADER.pack(_MAGIC, *codes, *sizes), np.uint8)

    def _payload(self, values: Values) -> npt.NDArray[Any]:
        return values if self.values == "same" else self.kernels.arrays.narrow(values, self.values)

    def decode(self, frame: Bytes, wide_indices: bool) -> Block:
        """The block in ``frame``; indices as int64 if ``wide_indices``, else int32."""
        return self.decode_all([frame], wide_indices)[0]

    def decode_all(self, frames: Sequence[Bytes], wide_indices: bool) -> list[Block]:
        """``decode`` for several frames: what of them is on a GPU is fetched and unpacked together."""
        if (compiled := self.kernels.frames) is None:
            return self._take_apart(frames, wide_indices)
        return self._read_by(compiled.read_frames, frames, wide_indices)

    def decode_message(self, message: Bytes, expected: int, wide_indices: bool) -> list[Block]:
        """The blocks of a message of ``expected`` frames."""
        if (compiled := self.kernels.frames) is None:
            return self._take_apart(split(message, expected), wide_indices)
        return self._read_by(compiled.read_message, message, expected, wide_indices)

    def _read_by(
        self, read: Callable[..., list[tuple[int, int, int, int, Indices, Values]]], *args: Any
    ) -> list[Block]:
        try:
            blocks = read(*args)
        except ValueError as error:
            raise WireError(str(error)) from None
        return [
            Block(base, length, indices, self._widened(values, coding, _DTYPES[dtype]))
            for base, length, dtype, coding, indices, values in blocks
        ]

    def _take_apart(self, frames: Sequence[Bytes], wide_indices: bool) -> list[Block]:
        wanted, arrays = _WIDE if wide_indices else _NARROW, self.kernels.arrays
        headers = [_read_header(*front) for front in zip(fronts(frames, _HEADER.size), frames, strict=True)]
        blocks, packed = [], []
        for header, frame in zip(headers, arrays.messages.unload(frames), strict=True):
            _, dtype_code, value_code, coding, bits, count, base, length, high_words = header
            reader = _Reader(frame, _HEADER.size)
            indices = None  # if packed: to come
            if coding == _PACKED:
                low = reader.take(-(-count * bits // 64), _WORD)
                packed.append((low, reader.take(high_words, _WORD), count, base, bits))
            elif coding == _DENSE:
                indices = arrays.from_host(np.arange(base, base + count, dtype=wanted))
            else:
                indices = arrays.shift(reader.take(count, index_dtype(length)), base, wanted)
            dtype = _DTYPES[dtype_code]
            stored = reader.take(count, dtype if value_code == 0 else np.dtype(np.uint16))
            blocks.append((base, length, indices, self._widened(stored, value_code, dtype)))
        unpacked = iter(self.kernels.unpack_many(packed, wanted) if packed else ())
        return [
            Block(base, length, next(unpacked) if indices is None else indices, values)
            for base, length, indices, values in blocks
        ]

    def _widened(self, stored: npt.NDArray[Any], coding: int, dtype: np.dtype[Any]) -> Values:
        return stored if coding == 0 else self.kernels.arrays.widen(stored, VALUE_CODINGS[coding], dtype)


def _read_header(front: Bytes, frame: Bytes) -> tuple[Any, ...]:
    if len(front) < _HEADER.size:
        raise WireError(f"frame of {len(frame)} bytes is shorter than its header")
    header = _HEADER.unpack_from(front.data)
    if header[0] != _MAGIC:
        raise WireError(f"frame starts with {header[0]!r}, expected {_MAGIC!r}: do all ranks run the same spardl?")
    return header


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
    """Takes arrays off a frame without copying, one after the other; every part is padded to 8 bytes."""

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
    table = struct.pack(f"<{1 + len(frames)}q", len(frames), *map(len, frames))
    return [np.frombuffer(table, np.uint8), *frames]


def table_bytes(frames: int) -> int:
    """How much a message adds to its frames."""
    return 8 * (1 + frames)


def split(message: Bytes, expected: int) -> list[Bytes]:
    """The frames of a message, as views; there must be ``expected`` of them."""
    table = table_bytes(expected)
    words = struct.unpack_from(f"<{1 + expected}q", front_of(message, table)) if len(message) >= table else (-1,)
    count, *lengths = words
    ends = list(accumulate(lengths, initial=table))
    if count != expected or ends[-1] != len(message):
        raise WireError(f"expected a message of {expected} frames, got {len(message)} bytes that are not")
    return [message[begin:end] for begin, end in pairwise(ends)]


def _pad(size: int) -> int:
    return -(-size // 8) * 8
