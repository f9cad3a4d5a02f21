"""The header of a frame (``spardl.wire``), and what a receiver can tell from it: csrc/frame.hpp has the same."""

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl.errors import WireError
from spardl.kernels.api import INDEX_LIMIT
from spardl.sparse import index_dtype

VALUE_CODINGS = ("same", "bf16", "fp16")
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
RAW, PACKED, DENSE = 0, 1, 2
UNSIGNED = int.from_bytes(b"unsigned", "little")  # not 0: a stretch of lost bytes shall not pass for it
MAGIC = b"SPv2"
MOST_BITS = 57
HEADER = struct.Struct("<4sBBBBQqqqq")


class Header(NamedTuple):
    """The fields of a frame's header, in order; the same as in csrc/frame.hpp."""

    magic: bytes
    dtype: int
    value_coding: int
    coding: int
    bits: int
    digest: int
    entries: int
    base: int
    length: int
    high_words: int

    @property
    def is_sound(self) -> bool:
        """Whether spardl writes such headers. Then what is read as an index stays in 64 bits, whatever it is."""
        count, length, bits = self.entries, self.length, self.bits
        if self.dtype >= len(DTYPES) or self.value_coding >= len(VALUE_CODINGS) or bits > MOST_BITS:
            return False
        if not (0 <= self.base <= INDEX_LIMIT - length and 0 <= count <= length and self.high_words >= 0):
            return False
        if self.coding == PACKED:
            return count <= length >> bits and self.high_words <= words_for(count + (length >> bits))
        return self.coding <= DENSE and bits == self.high_words == 0 and (self.coding == RAW or count == length)

    @property
    def frame_bytes(self) -> int:
        """How long the frame must be."""
        width = DTYPES[self.dtype].itemsize if self.value_coding == 0 else 2
        if self.coding == PACKED:
            indices = 8 * (words_for(self.entries * self.bits) + self.high_words)
        else:
            indices = self.entries * index_dtype(self.length).itemsize if self.coding == RAW else 0
        return HEADER.size + padded(indices) + padded(self.entries * width)


def read_header(front: npt.NDArray[np.uint8], size: int, wanted: np.dtype[Any]) -> Header:
    """Of a frame of ``size`` bytes, whose indices are to be of the type ``wanted``."""
    if size < HEADER.size:
        raise WireError(f"frame of {size} bytes is shorter than its header")
    header = Header(*HEADER.unpack_from(front.data))
    if header.magic != MAGIC:
        raise WireError(f"frame starts with {header.magic!r}, expected {MAGIC!r}: do all ranks run the same spardl?")
    if not header.is_sound:
        raise WireError("frame has a header that spardl does not write")
    if header.frame_bytes != size:
        raise WireError(f"frame of {size} bytes should have {header.frame_bytes}, as its header has it")
    if header.base + header.length - 1 > np.iinfo(wanted).max:
        raise WireError(f"frame of a block up to {header.base + header.length}: expected 32-bit indices")
    return header


def span_of(count: int, first: list[int], last: list[int], base: int, length: int) -> int:
    """How many elements there are from ``base`` up to the last index, if indices begin and end within the block."""
    if base < 0 or length < 0 or base + length > INDEX_LIMIT or count > length:
        raise ValueError(f"expected at most {length} indices of a block from {base} on, got {count}")
    if count and not base <= first[0] <= last[0] < base + length:
        raise ValueError(
            f"expected increasing indices from {base} on, below {base} + {length}, "
            f"got {count} from {first[0]} to {last[0]}"
        )
    return last[0] - base + 1 if count else 0


def words_for(bits: int) -> int:
    return -(-bits // 64)


def padded(size: int) -> int:
    return -(-size // 8) * 8
