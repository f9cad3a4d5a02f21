"""Entries ⇄ frames on one rank, with checks that the sender's gradients are of the same type and in the right place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.effects import Bytes
from spardl.errors import DtypeDisagreement, WireError
from spardl.kernels import memory
from spardl.kernels.api import Arrays, Pair
from spardl.sparse import SparseVector, index_dtype
from spardl.wire import Block, Codec


@dataclass(frozen=True, slots=True)
class Frames:
    """``size`` is that of the whole gradient."""

    rank: int
    dtype: np.dtype[Any]
    codec: Codec
    size: int

    def write(self, pair: Pair, lo: int, hi: int) -> Bytes:
        """Entries of the elements from ``lo`` to ``hi``."""
        return self.codec.encode(*pair, lo, hi - lo)

    def write_message(self, vectors: Sequence[Pair], bounds: Sequence[tuple[int, int]]) -> Any:
        """A message of the entries of each of several blocks, as a payload."""
        return self.codec.encode_message(vectors, _blocks(bounds))

    def read(self, frame: Bytes, sender: int, lo: int, hi: int) -> Pair:
        """The entries in a frame from rank ``sender`` of the elements from ``lo`` to ``hi``."""
        return self.read_all([frame], [sender], [(lo, hi)])[0]

    def read_all(
        self, frames: Sequence[Bytes], senders: Sequence[int], bounds: Sequence[tuple[int, int]]
    ) -> list[Pair]:
        """The entries in each of several frames."""
        return self._checked(self.codec.decode_all(frames, self._has_wide_indices, _blocks(bounds)), senders)

    def read_message(self, message: Bytes, sender: int, bounds: Sequence[tuple[int, int]]) -> list[Pair]:
        """The entries in each of the frames of a message."""
        blocks = self.codec.decode_message(message, len(bounds), self._has_wide_indices, _blocks(bounds))
        return self._checked(blocks, [sender] * len(bounds))

    def read_pieces(self, frames: Sequence[Bytes], senders: Sequence[int]) -> list[Pair]:
        """The entries in frames that follow one another; where each begins and ends only its sender knew."""
        blocks = self.codec.decode_all(frames, self._has_wide_indices)
        end = 0
        for block, sender in zip(blocks, senders, strict=True):
            if block.length == 0:
                continue
            if not end <= block.base <= self.size - block.length:
                raise WireError(
                    f"frame of the elements {block.base} to {block.base + block.length} from rank {sender}, "
                    f"expected one between {end} and {self.size}"
                )
            end = block.base + block.length
        return self._checked(blocks, senders)

    @property
    def _has_wide_indices(self) -> bool:
        return index_dtype(self.size) == np.int64

    def _checked(self, blocks: Sequence[Block], senders: Sequence[int]) -> list[Pair]:
        for block, sender in zip(blocks, senders, strict=True):
            if block.values.dtype != self.dtype:
                raise DtypeDisagreement({self.rank: str(self.dtype), sender: str(block.values.dtype)})
        return [(block.indices, block.values) for block in blocks]


def _blocks(bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Base and length, as the wire has it."""
    return [(lo, hi - lo) for lo, hi in bounds]


def numbers_in(frame: Bytes, dtype: npt.DTypeLike, count: int | None = None) -> npt.NDArray[Any]:
    """Bytes from another rank that are ``count`` numbers, or any number of them."""
    kind = np.dtype(dtype)
    expected = len(frame) // kind.itemsize if count is None else count
    if len(frame) != expected * kind.itemsize:
        raise WireError(f"{len(frame)} bytes arrived, expected {expected} numbers of {kind.itemsize} bytes each")
    return frame.view(kind)


def joined(blocks: Sequence[Pair], size: int, arrays: Arrays = memory.HOST) -> SparseVector:
    """The vector that consists of these blocks, which follow one another."""
    indices, values = (arrays.concatenate(part) for part in zip(*blocks, strict=True))
    return SparseVector.trusted(indices, values, size)
