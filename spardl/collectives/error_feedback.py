"""What all sparse all-reduces have in common: gradient plus residual in, and what is left out becomes residual."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from spardl import saved
from spardl.collectives.frames import Frames
from spardl.effects import Collective, Flush
from spardl.kernels.api import Kernels, Pair, Values
from spardl.residual import Residual
from spardl.sparse import SparseVector
from spardl.wire import Codec

Memory = TypeVar("Memory")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Memory]):
    """Of a reduce: its result, what was learnt, and what has yet to be written into the new residual, if anything."""

    result: SparseVector
    learnt: Memory
    corrections: Pair | None = None


class ErrorFeedback(ABC, Generic[Memory]):
    """A Reducer, all but the algorithm itself: residual, transaction, undo, checkpoints.

    The accumulator is a second buffer that becomes the residual when the reduce has succeeded. Until the next reduce
    the old residual is still there, so that undo is a swap. ``Memory`` is what else an algorithm learns from reduce
    to reduce, in a value that is never modified.
    """

    def __init__(
        self, size: int, k: int, *, rank: int, ranks: int, dtype: npt.DTypeLike, kernels: Kernels, codec: Codec
    ) -> None:
        self.size, self.rank, self.ranks = size, rank, ranks
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._kernels, self._codec = kernels, codec
        self._frames = Frames(rank, self.dtype, codec, size)
        self._residual = Residual(kernels, kernels.arrays.lasting(size, self.dtype))
        self._spare: Values = kernels.arrays.lasting(size, self.dtype)
        self.rebudget(k)

    @abstractmethod
    def _budget(self, k: int) -> Memory:
        """Prepares for ``k`` entries and returns what is known before the first reduce."""

    @abstractmethod
    def _run(self, grad: Values, acc: Values, memory: Memory) -> Collective[Outcome[Memory]]:
        """The algorithm: accumulates into ``acc`` and leaves the new residual there, but for corrections.

        It must not change anything else that outlives the reduce.
        """

    @abstractmethod
    def _save(self, memory: Memory) -> dict[str, Any]:
        """``memory`` for a checkpoint."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> Memory:
        """Undoes ``_save``. Raises ValueError if that is not where ``state`` comes from."""

    @property
    def residual(self) -> Values:
        (residual,) = self._kernels.arrays.to_host(self._residual.settled())
        return residual

    def rebudget(self, k: int) -> None:
        self._memory = self._budget(k)
        self._before: tuple[Memory] | None = None

    def owe(self, residual: Values) -> None:
        self._before = None
        self._residual.corrections = None
        self._kernels.arrays.assign(self._residual.dense, residual)

    def reduce(self, grad: Values) -> Collective[SparseVector]:
        self._before = None  # from here on the spare buffer no longer holds the residual of the reduce before
        outcome = yield from self._run(grad, self._spare, self._memory)
        yield Flush("delivery of the result")  # a peer that is gone must be noticed before anything changes here
        self._before = (self._memory,)
        self._exchange(outcome.corrections)
        self._memory = outcome.learnt
        return outcome.result

    def _exchange(self, corrections: Pair | None) -> None:
        """The accumulator becomes the residual, which has been passed over and is complete."""
        old, self._residual = self._residual, Residual(self._kernels, self._spare, corrections)
        self._spare = old.settled()

    def undo(self) -> None:
        if self._before is None:
            raise RuntimeError("undo: there is no reduce to take back")
        self._exchange(None)
        (self._memory,) = self._before
        self._before = None

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual.copy(), **self._save(self._memory)}

    def in_common(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        residual = saved.array(saved.part(state, "residual"), "a residual", (self.size,), self.dtype)
        memory = self._load(state)
        self.owe(residual)
        self._memory = memory
