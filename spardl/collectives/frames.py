"""Entries ⇄ frames on one rank, with a check that the sender's gradients are of the same type."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spardl.effects import Bytes
from spardl.errors import DtypeDisagreement
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
        return self.codec.encode_message(vectors, [(lo, hi - lo) for lo, hi in bounds])

    def read(self, frame: Bytes, sender: int) -> Pair:
        """The entries in a frame from rank ``sender``."""
        return self.read_all([frame], [sender])[0]

    def read_all(self, frames: Sequence[Bytes], senders: Sequence[int]) -> list[Pair]:
        """The entries in each of several frames."""
        return self._checked(self.codec.decode_all(frames, self._has_wide_indices), senders)

    def read_message(self, message: Bytes, expected: int, sender: int) -> list[Pair]:
        """The entries in each of the frames of a message."""
        blocks = self.codec.decode_message(message, expected, self._has_wide_indices)
        return self._checked(blocks, [sender] * expected)

    @property
    def _has_wide_indices(self) -> bool:
        return index_dtype(self.size) == np.int64

    def _checked(self, blocks: Sequence[Block], senders: Sequence[int]) -> list[Pair]:
        for block, sender in zip(blocks, senders, strict=True):
            if block.values.dtype != self.dtype:
                raise DtypeDisagreement({self.rank: str(self.dtype), sender: str(block.values.dtype)})
        return [(block.indices, block.values) for block in blocks]


def joined(blocks: Sequence[Pair], size: int, arrays: Arrays = memory.HOST) -> SparseVector:
    """The vector that consists of these blocks, which follow one another."""
    indices, values = (arrays.concatenate(part) for part in zip(*blocks, strict=True))
    return SparseVector.trusted(indices, values, size)
