"""Sparse blocks ⇄ bytes.

A *frame* is one block, self-describing: a 48-byte header, the indices, the values; each part padded to 8 bytes.
A *message* is what one round sends: a digest, the number of frames, their lengths, the frames. Indices are stored
relative to the block's start, raw (4 bytes, or 8 in blocks past 2**31) or packed (``Kernels.pack``: at 1 % about one
byte). A block may also be written dense: the values of all its elements, and no indices.

Bytes that arrive are not trusted. A digest (XXH3, 64 bits) tells whether they are the bytes that were sent: a message's
covers all behind it, a frame's all of the frame. ``UNSIGNED`` stands in its place in the frames of ``encode_message``,
which the message's covers, and in a GPU's memory, which cannot be hashed without a copy to the host. In any case the
structure is checked before it is used: sizes fit, indices increase strictly and are within the block, and the block is
the one that the receiver expects. What fails any of this is a ``WireError``.

csrc/frame.hpp writes and reads the same frames, for kernels that are compiled; here they are put together from parts.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spardl.digests import DIGEST, digest_of, require_whole_frame, require_whole_message, sign_frame, sign_message
from spardl.effects import FRONT_BYTES, Bytes, Draft, front_of, fronts
from spardl.errors import WireError
from spardl.header import (
    DENSE,
    DTYPES,
    HEADER,
    MAGIC,
    MOST_BITS,
    PACKED,
    RAW,
    UNSIGNED,
    Header,
    padded,
    read_header,
    span_of,
    words_for,
)
from spardl.header import VALUE_CODINGS as VALUE_CODINGS
from spardl.kernels import memory
from spardl.kernels.api import Indices, Kernels, Pair, Values
from spardl.sparse import index_dtype

INDEX_CODINGS = ("auto", "raw", "packed")

_NOT_PACKED = -1  # in place of a number of bits
_NARROW, _WIDE, _WORD = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64)


_Read: TypeAlias = tuple[int, int, int, int, Indices, Values]  # by FrameCoder


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
        """One frame. ``values`` are written as they are after ``round``. Raises ValueError for indices elsewhere."""
        if (compiled := self.kernels.frames) is None:
            return sign_frame(self._put_together([(indices, values)], [(base, length)])[0])
        return sign_frame(compiled.write_frame((indices, self._payload(values)), (base, length), *self._codes(values)))

    def encode_message(self, vectors: Sequence[Pair], blocks: Sequence[tuple[int, int]]) -> Any:
        """A message of the frames of several blocks, given base and length of each, as a payload."""
        if (compiled := self.kernels.frames) is None or not vectors:
            return join(self._put_together(vectors, blocks))
        stored = [(indices, self._payload(values)) for indices, values in vectors]
        paper = compiled.write_message(stored, blocks, *self._codes(vectors[0][1]), FRONT_BYTES)
        sign_message(paper, FRONT_BYTES)
        return Draft(paper)

    def _codes(self, values: Values) -> tuple[str, int, int]:
        return self.indices, DTYPES.index(values.dtype), VALUE_CODINGS.index(self.values)

    def _put_together(self, vectors: Sequence[Pair], blocks: Sequence[tuple[int, int]]) -> list[Bytes]:
        arrays = self.kernels.arrays
        bits, to_pack = [], []
        ends = arrays.to_host(*[indices[end] for indices, _ in vectors for end in (slice(1), slice(-1, None))])
        for (indices, _), (base, length), first, last in zip(vectors, blocks, ends[::2], ends[1::2], strict=True):
            count = len(indices)
            span = span_of(count, first.tolist(), last.tolist(), base, length)
            bits.append(rice_bits(span, count))
            if self.indices == "packed" or (
                self.indices == "auto" and _packed_bytes(span, count, bits[-1]) < count * 4
            ):
                to_pack.append((indices, base, bits[-1]))
            else:
                bits[-1] = _NOT_PACKED
        packed = iter(self.kernels.pack_many(to_pack) if to_pack else ())
        headers, parts, bounds = [], [], [0]
        for (indices, values), (base, length), low_bits in zip(vectors, blocks, bits, strict=True):
            if low_bits == _NOT_PACKED:
                parts.append(arrays.shift(indices, -base, index_dtype(length)))
                headers.append(self._header(values, RAW, 0, len(indices), base, length, 0))
            else:
                low, high = next(packed)
                parts += low, high
                headers.append(self._header(values, PACKED, low_bits, len(indices), base, length, len(high)))
            parts.append(self._payload(values))
            bounds.append(len(parts))
        loaded = arrays.messages.load(*parts)  # all at once: on a GPU that is waited for
        return [
            arrays.messages.frame(header, loaded[begin:end])
            for header, (begin, end) in zip(headers, pairwise(bounds), strict=True)
        ]

    def encode_shorter(self, indices: Indices, values: Values, base: int, length: int) -> Bytes:
        """One frame, sparse or dense, whichever is shorter. A dense block comes back with all its elements."""
        sparse = self.encode(indices, values, base, length)
        width = values.itemsize if self.values == "same" else 2
        if len(sparse) <= dense_frame_bytes(length, width):
            return sparse
        dense = memory.zeros(length, values.dtype)
        dense[indices - indices.dtype.type(base)] = values
        messages, header = self.kernels.arrays.messages, self._header(values, DENSE, 0, length, base, length, 0)
        return sign_frame(messages.frame(header, messages.load(self._payload(dense))))

    def _header(self, values: Values, coding: int, bits: int, *sizes: int) -> Bytes:
        """``sizes`` are count, base, length and high words."""
        codes = (DTYPES.index(values.dtype), VALUE_CODINGS.index(self.values), coding, bits)
        return np.frombuffer(HEADER.pack(MAGIC, *codes, UNSIGNED, *sizes), np.uint8)

    def _payload(self, values: Values) -> npt.NDArray[Any]:
        return values if self.values == "same" else self.kernels.arrays.narrow(values, self.values)

    def decode(self, frame: Bytes, wide_indices: bool, block: tuple[int, int] | None = None) -> Block:
        """The block in ``frame``; indices as int64 if ``wide_indices``, else int32.

        ``block``: the base and length that it must have. Raises WireError for anything that is not a frame of it.
        """
        return self.decode_all([frame], wide_indices, None if block is None else [block])[0]

    def decode_all(
        self, frames: Sequence[Bytes], wide_indices: bool, blocks: Sequence[tuple[int, int]] | None = None
    ) -> list[Block]:
        """``decode`` for several frames: what of them is on a GPU is fetched and unpacked together."""
        for frame in frames:
            require_whole_frame(frame)
        if (compiled := self.kernels.frames) is None:
            return self._take_apart(frames, wide_indices, blocks)
        return self._read_by(compiled.read_frames, (frames, wide_indices), blocks)

    def decode_message(
        self, message: Bytes, expected: int, wide_indices: bool, blocks: Sequence[tuple[int, int]] | None = None
    ) -> list[Block]:
        """The blocks of a message of ``expected`` frames."""
        if (compiled := self.kernels.frames) is None:
            return self._take_apart(split(message, expected), wide_indices, blocks)
        require_whole_message(message)
        return self._read_by(compiled.read_message, (message, expected, wide_indices), blocks)

    def _read_by(
        self, read: Callable[..., list[_Read]], what: tuple[Any, ...], blocks: Sequence[tuple[int, int]] | None
    ) -> list[Block]:
        try:
            found = read(*what)
        except ValueError as error:
            raise WireError(str(error)) from None
        _require_blocks(found, blocks)
        return [
            Block(base, length, indices, self._widened(values, coding, DTYPES[dtype]))
            for base, length, dtype, coding, indices, values in found
        ]

    def _take_apart(self, frames: Sequence[Bytes], wide: bool, blocks: Sequence[tuple[int, int]] | None) -> list[Block]:
        wanted = _WIDE if wide else _NARROW
        headers = [
            read_header(front, len(frame), wanted)
            for front, frame in zip(fronts(frames, HEADER.size), frames, strict=True)
        ]
        _require_blocks([(header.base, header.length) for header in headers], blocks)
        unloaded = self.kernels.arrays.messages.unload(frames) if frames else []
        parts = [_parts_of(header, frame) for header, frame in zip(headers, unloaded, strict=True)]
        try:
            indices = self._indices(headers, [stored for stored, _ in parts], wanted)
        except ValueError as error:  # of the kernels, which know of no wire
            raise WireError(str(error)) from None
        return [
            Block(header.base, header.length, of_it, self._widened(values, header.value_coding, DTYPES[header.dtype]))
            for header, of_it, (_, values) in zip(headers, indices, parts, strict=True)
        ]

    def _indices(
        self, headers: Sequence[Header], stored: Sequence[list[npt.NDArray[Any]]], wanted: np.dtype[Any]
    ) -> list[Indices]:
        """Those of each frame, given the parts of it that they are stored in. All of one coding at once."""
        arrays = self.kernels.arrays
        by_coding: dict[int, list[tuple[Header, list[npt.NDArray[Any]]]]] = {RAW: [], PACKED: [], DENSE: []}
        for header, parts in zip(headers, stored, strict=True):
            by_coding[header.coding].append((header, parts))
        packed = [(low, high, of.entries, of.base, of.bits) for of, (low, high) in by_coding[PACKED]]
        ends = [of.base + of.length for of, _ in by_coding[PACKED]]
        raw = [(numbers, of.base, of.length) for of, (numbers,) in by_coding[RAW]]
        dense = [np.arange(of.base, of.base + of.entries, dtype=wanted) for of, _ in by_coding[DENSE]]
        found = {
            PACKED: iter(self.kernels.unpack_many(packed, wanted, ends) if packed else ()),
            RAW: iter(arrays.place_many(raw, wanted) if raw else ()),
            DENSE: map(arrays.from_host, dense),
        }
        return [next(found[header.coding]) for header in headers]

    def _widened(self, stored: npt.NDArray[Any], coding: int, dtype: np.dtype[Any]) -> Values:
        return stored if coding == 0 else self.kernels.arrays.widen(stored, VALUE_CODINGS[coding], dtype)


def _require_blocks(found: Sequence[tuple[Any, ...]], expected: Sequence[tuple[int, int]] | None) -> None:
    """That frames, which begin with base and length, are of these blocks."""
    if expected is None:
        return
    for frame, block in zip(found, expected, strict=True):
        if frame[:2] != block:
            (base, length), (wanted_base, wanted_length) = frame[:2], block
            raise WireError(
                f"frame of the elements {base} to {base + length}, "
                f"expected one of {wanted_base} to {wanted_base + wanted_length}"
            )


def _parts_of(header: Header, frame: Bytes) -> tuple[list[npt.NDArray[Any]], npt.NDArray[Any]]:
    """The parts of a frame that has the size which its header says: those that its indices are in, and its values."""
    reader, count = _Reader(frame, HEADER.size), header.entries
    indices = []
    if header.coding == PACKED:
        indices = [reader.take(words_for(count * header.bits), _WORD), reader.take(header.high_words, _WORD)]
    elif header.coding == RAW:
        indices = [reader.take(count, index_dtype(header.length))]
    return indices, reader.take(count, DTYPES[header.dtype] if header.value_coding == 0 else np.dtype(np.uint16))


# -- sizes -------------------------------------------------------------------------------------------------------------


def rice_bits(span: int, count: int) -> int:
    """How many low bits of a gap to store as they are: log₂ of 0.69 × the mean gap, best for geometric gaps."""
    mean = span // count if count else 0
    return min(MOST_BITS, max(0, (mean * 89 // 128).bit_length() - 1))


def _packed_bytes(span: int, count: int, bits: int) -> int:
    return 8 * (words_for(count * bits) + words_for(count + (span >> bits)))


def frame_bytes(count: int, length: int, itemsize: int, indices: str = "auto") -> int:
    """How long the frame of ``count`` entries spread over ``length`` elements is; packed ones to about 1 %."""
    raw = padded(count * index_dtype(length).itemsize)
    span = -(-length * count // (count + 1))  # up to the last index, at random
    packed = _packed_bytes(span, count, rice_bits(span, count))
    chosen = {"raw": raw, "packed": packed, "auto": packed if packed < count * 4 else raw}[indices]
    return HEADER.size + chosen + padded(count * itemsize)


def dense_frame_bytes(length: int, itemsize: int) -> int:
    """How long the frame of all of a block's elements is."""
    return HEADER.size + padded(length * itemsize)


class _Reader:
    """Takes arrays off a frame of the right size, one after the other; every part is padded to 8 bytes."""

    def __init__(self, frame: Bytes, offset: int) -> None:
        self._frame, self._offset = frame, offset

    def take(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Without a copy, unless the frame begins where such numbers may not."""
        end = self._offset + count * dtype.itemsize
        part = self._frame[self._offset : end].view(dtype)
        self._offset = padded(end)
        return part.copy() if isinstance(part, np.ndarray) and not part.flags.aligned else part


def join(frames: Sequence[Bytes]) -> list[Bytes]:
    """Frames as one message, in parts: the runtime copies them into place."""
    table = struct.pack(f"<{1 + len(frames)}q", len(frames), *map(len, frames))
    return [np.frombuffer(DIGEST.pack(digest_of(table, frames)) + table, np.uint8), *frames]


def table_bytes(frames: int) -> int:
    """How much a message adds to its frames."""
    return 8 * (2 + frames)


def split(message: Bytes, expected: int) -> list[Bytes]:
    """The frames of a message, as views; there must be ``expected`` of them."""
    require_whole_message(message)
    table = table_bytes(expected)
    if expected < 0 or len(message) < table:
        raise _not_a_message(message, expected)
    _, count, *lengths = struct.unpack_from(f"<Q{1 + expected}q", front_of(message, table))
    ends = list(accumulate(lengths, initial=table))
    if count != expected or min(lengths, default=0) < 0 or ends[-1] != len(message):
        raise _not_a_message(message, expected)
    return [message[begin:end] for begin, end in pairwise(ends)]


def _not_a_message(message: Bytes, expected: int) -> WireError:
    return WireError(f"expected a message of {expected} frames, got {len(message)} bytes that are not")
