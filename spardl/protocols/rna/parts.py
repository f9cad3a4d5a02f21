"""How a rank reduces in a round, sparsely or densely, with whoever the members are; and results as bytes."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl.collectives.dense_sum import dense_sum
from spardl.collectives.frames import numbers_in
from spardl.collectives.spardl import SparDL
from spardl.effects import Bytes, Collective, Flush
from spardl.errors import WireError
from spardl.kernels.api import Kernels
from spardl.protocols.rna.waiting import Values
from spardl.schedule import Teams
from spardl.sparse import SparseVector, index_dtype
from spardl.wire import Codec

_MOST_RANKS = 2**31  # as MPI counts them


class Sum(NamedTuple):
    """What a round gives: the sum over members, or its largest entries, and of how many ranks' gradients."""

    vector: SparseVector
    contributors: int


class Shift(NamedTuple):
    """What a round gives that brings no gradients: by what the group's weights move, towards those of other groups."""

    delta: Values


_SUM, _SHIFT = "sum", "shift"


class Part(ABC):
    """What both kinds have in common: how a result is sent to those who were absent."""

    def __init__(self, size: int, dtype: npt.DTypeLike) -> None:
        self.size = size
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    @abstractmethod
    def contribute(self, members: tuple[int, ...], rank: int, contribution: Any) -> Collective[Sum]: ...

    @abstractmethod
    def undo(self) -> None: ...

    def write(self, result: Sum | Shift) -> tuple[str, Bytes]:
        if isinstance(result, Shift):
            return _SHIFT, result.delta.view(np.uint8)
        return _SUM, self._write(result)

    def read(self, kind: str, message: Bytes) -> Sum | Shift:
        """What was written. Raises WireError for bytes that are no result of this size and type."""
        if kind == _SHIFT:
            return Shift(numbers_in(message, self.dtype, self.size))
        if kind != _SUM or message is None:
            raise WireError(f"a round's result arrived of a kind that is not known: {kind!r}")
        return self._read(message)

    @abstractmethod
    def _write(self, result: Sum) -> Bytes: ...

    @abstractmethod
    def _read(self, message: Bytes) -> Sum: ...


class SparsePart(Part):
    """SparDL among the members: a contribution goes on top of the residual, and what is not sent stays in it."""

    def __init__(self, size: int, k: int, dtype: npt.DTypeLike, kernels: Kernels, codec: Codec) -> None:
        super().__init__(size, dtype)
        self._exact = Codec(codec.kernels, codec.indices)  # a member that was alone in a round has rounded nothing
        self.reducer = SparDL(size, k, rank=0, layout=Teams(1, 1), dtype=dtype, kernels=kernels, codec=codec)

    def contribute(self, members: tuple[int, ...], rank: int, contribution: Values) -> Collective[Sum]:
        self.reducer.regroup(Teams(len(members), 1), members.index(rank))
        vector = yield from self.reducer.reduce(contribution)
        return Sum(vector, len(members))

    def undo(self) -> None:
        self.reducer.undo()

    def _write(self, result: Sum) -> Bytes:
        vector = result.vector
        head = np.array([result.contributors], np.int64).view(np.uint8)
        return np.concatenate([head, self._exact.encode(vector.indices, vector.values, 0, vector.size)])

    def _read(self, message: Bytes) -> Sum:
        block = self._exact.decode(message[8:], index_dtype(self.size) == np.int64, (0, self.size))
        if block.values.dtype != self.dtype:
            raise WireError(f"a result in {block.values.dtype} arrived, expected {self.dtype}")
        contributors = _ranks(message[:8].view(np.int64)[0])
        return Sum(SparseVector.trusted(block.indices, block.values, self.size), contributors)


class DensePart(Part):
    """Everything is summed, and with it how many members had something to give."""

    def contribute(self, members: tuple[int, ...], rank: int, contribution: Values | None) -> Collective[Sum]:
        own = np.zeros(self.size + 1, self.dtype)
        if contribution is not None:
            own[:-1], own[-1] = contribution, 1
        total = np.empty_like(own)
        yield from dense_sum(len(members), members.index(rank), own, total)
        yield Flush("delivery of the sum")
        return self._sum(total)

    def undo(self) -> None:
        """There is nothing to take back."""

    def _write(self, result: Sum) -> Bytes:
        return np.append(result.vector.values, self.dtype.type(result.contributors)).view(np.uint8)

    def _read(self, message: Bytes) -> Sum:
        return self._sum(numbers_in(message, self.dtype, self.size + 1))

    def _sum(self, total: Values) -> Sum:
        return Sum(SparseVector.trusted(None, total[:-1], self.size), _ranks(total[-1]))


def _ranks(told: Any) -> int:
    """How many ranks have contributed, if that can be."""
    if not 0 <= told <= _MOST_RANKS:
        raise WireError(f"a result of {told} ranks arrived, which cannot be")
    return round(float(told))
