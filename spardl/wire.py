"""Sparse blocks ⇄ bytes.

A *frame* is one block, self-describing: a 40-byte header, the indices, the values; each part padded to 8 bytes.
A *message* is what one round sends: the number of frames, their lengths, the frames. Indices are stored relative to the
block's start, raw (4 bytes, or 8 in blocks past 2**31) or packed (``Kernels.pack``: at 1 % about one byte). A block may
also be written dense: the values of all its elements, and no indices.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl.effects import Bytes, fronts
from spardl.errors import WireError
from spardl.kernels import memory
from spardl.kernels.api import Indices, Kernels, Packed, Pair, Values
from spardl.sparse import index_dtype

INDEX_CODINGS = ("auto", "raw", "packed")
VALUE_CODINGS = ("same", "bf16", "fp16")

_HEADER = struct.Struct("<4sBBBBqqqq")  # a _Header
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
        rounded = arrays.widen(arrays.narrow(values, self.values), self.values, values.dtype)
        return rounded, arrays.subtract(values, rounded)

    def encode(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame. ``values`` are written as they are after ``round``."""
        return self.encode_all([(indices, values)], [(base, length)])[0]

    def encode_all(self, vectors: Sequence[Pair], blocks: Sequence[tuple[int, int]]) -> list[Bytes]:
        """``encode`` for several blocks, given base and length of each."""
        arrays = self.kernels.arrays
        lasts = arrays.to_host(*(indices[max(len(indices) - 1, 0) :] for indices, _ in vectors))
        spans = [int(last[0]) - base + 1 if len(last) else 0 for last, (base, _) in zip(lasts, blocks, strict=True)]
        bits = [rice_bits(span, len(indices)) for span, (indices, _) in zip(spans, vectors, strict=True)]
        to_pack = {
            i: (indices, blocks[i][0], bits[i])
            for i, (indices, _) in enumerate(vectors)
            if self._packs(spans[i], len(indices), bits[i])
        }
        packed = dict(zip(to_pack, self.kernels.pack_many(list(to_pack.values())), strict=True)) if to_pack else {}
        frames = []
        for i, ((indices, values), (base, length)) in enumerate(zip(vectors, blocks, strict=True)):
            if i in packed:
                low, high = packed[i]
                coded = _Coded([low, high], _PACKED, bits[i], len(high))
            else:
                coded = _Coded([arrays.shift(indices, -base, index_dtype(length))], _RAW, 0, 0)
            frames.append((coded, values, len(indices), base, length))
        return self._frames(frames)

    def _packs(self, span: int, count: int, bits: int) -> bool:
        return self.indices == "packed" or (self.indices == "auto" and _packed_bytes(span, count, bits) < count * 4)

    def encode_shorter(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame, sparse or dense, whichever is shorter. A dense block comes back with all its elements."""
        sparse = self.encode(indices, values, base, length)
        width = values.itemsize if self.values == "same" else 2
        if len(sparse) <= dense_frame_bytes(length, width):
            return sparse
        dense = memory.zeros(length, values.dtype)
        dense[indices - indices.dtype.type(base)] = values
        return self._frames([(_Coded([], _DENSE, 0, 0), dense, length, base, length)])[0]

    def _frames(self, blocks: Sequence[tuple["_Coded", Values, int, int, int]]) -> list[Bytes]:
        """Coded indices, values, count, base and length of each, written down. What is on a GPU is waited for once."""
        arrays, messages = self.kernels.arrays, self.kernels.arrays.messages
        headers, parts = [], []
        for coded, values, count, base, length in blocks:
            codes = (_DTYPES.index(values.dtype), VALUE_CODINGS.index(self.values), coded.coding, coded.bits)
            headers.append(_HEADER.pack(_MAGIC, *codes, count, base, length, coded.high_words))
            parts.append([*coded.parts, values if self.values == "same" else arrays.narrow(values, self.values)])
        loaded = iter(messages.load(*(part for block in parts for part in block)))
        return [
            messages.frame(np.frombuffer(header, np.uint8), list(islice(loaded, len(block))))
            for header, block in zip(headers, parts, strict=True)
        ]

    def decode(self, frame: Bytes, wide_indices: bool) -> Block:
        """The block in ``frame``; indices as int64 if ``wide_indices``, else int32."""
        return self.decode_all([frame], wide_indices)[0]

    def decode_all(self, frames: Sequence[Bytes], wide_indices: bool) -> list[Block]:
        """``decode`` for several frames: headers in a GPU's memory are fetched together."""
        wanted, messages = _WIDE if wide_indices else _NARROW, self.kernels.arrays.messages
        headers = [
            _read_header(front, len(frame)) for front, frame in zip(fronts(frames, _HEADER.size), frames, strict=True)
        ]
        readers = [_Reader(frame, _HEADER.size) for frame in messages.unload(frames)]
        all_indices = self._read_indices(headers, readers, wanted)
        return [
            Block(header.base, header.length, indices, self._read_values(header, reader))
            for header, reader, indices in zip(headers, readers, all_indices, strict=True)
        ]

    def _read_indices(
        self, headers: Sequence["_Header"], readers: Sequence["_Reader"], wanted: np.dtype[Any]
    ) -> list[Indices]:
        arrays = self.kernels.arrays
        indices: dict[int, Indices] = {}
        packed: dict[int, Packed] = {}
        for i, (header, reader) in enumerate(zip(headers, readers, strict=True)):
            count, base, bits = header.entries, header.base, header.bits
            if header.coding == _PACKED:
                low = reader.take(-(-count * bits // 64), _WORD)
                packed[i] = (low, reader.take(header.high_words, _WORD), count, base, bits)
            elif header.coding == _DENSE:
                indices[i] = arrays.from_host(np.arange(base, base + count, dtype=wanted))
            else:
                indices[i] = arrays.shift(reader.take(count, index_dtype(header.length)), base, wanted)
        if packed:
            indices |= zip(packed, self.kernels.unpack_many(list(packed.values()), wanted), strict=True)
        return [indices[i] for i in range(len(headers))]

    def _read_values(self, header: "_Header", reader: "_Reader") -> Values:
        dtype = _DTYPES[header.dtype_code]
        if header.value_code == 0:
            return reader.take(header.entries, dtype)
        codes = reader.take(header.entries, np.dtype(np.uint16))
        return self.kernels.arrays.widen(codes, VALUE_CODINGS[header.value_code], dtype)


class _Coded(NamedTuple):
    """Indices as they go on the wire."""

    parts: list[npt.NDArray[Any]]
    coding: int
    bits: int
    high_words: int


class _Header(NamedTuple):
    magic: bytes
    dtype_code: int
    value_code: int
    coding: int
    bits: int
    entries: int
    base: int
    length: int
    high_words: int


def _read_header(front: Bytes, frame_length: int) -> _Header:
    if len(front) < _HEADER.size:
        raise WireError(f"frame of {frame_length} bytes is shorter than its header")
    header = _Header(*_HEADER.unpack_from(front.data))
    if header.magic != _MAGIC:
        raise WireError(f"frame starts with {header.magic!r}, expected {_MAGIC!r}: do all ranks run the same spardl?")
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
    lengths = np.array([len(frames), *map(len, frames)], np.int64)
    return [lengths.view(np.uint8), *frames]


def table_bytes(frames: int) -> int:
    """How much a message adds to its frames."""
    return 8 * (1 + frames)


def split(message: Bytes, expected: int) -> list[Bytes]:
    """The frames of a message, as views; there must be ``expected`` of them."""
    table = table_bytes(expected)
    count, *lengths = fronts([message], table)[0].view(np.int64).tolist() if len(message) >= table else [-1]
    ends = list(accumulate(lengths, initial=table))
    if count != expected or ends[-1] != len(message):
        raise WireError(f"expected a message of {expected} frames, got {len(message)} bytes that are not")
    return [message[begin:end] for begin, end in pairwise(ends)]


def _pad(size: int) -> int:
    return -(-size // 8) * 8
