"""Contenders at work: each is fed gradients in turn."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spardl import SparseAllreduce, SparseVector
from spardl.bench.contenders import Contender
from spardl.runtime.library import MPI

Gradient = npt.NDArray[np.float32]
_GRADIENTS = 4  # different ones
_SHIFT = 1 << 12  # elements; a multiple of a page, so that all are aligned alike


@dataclass(frozen=True, slots=True)
class Options:
    """How all contenders are built."""

    backend: str = "auto"
    wire: str = "auto"
    wire_dtype: str = "same"

    def values_of(self, contender: Contender) -> str:
        """Dense ones round nothing."""
        return "same" if contender.is_dense else self.wire_dtype


def make_gradients(rank: int, size: int, seed: int) -> list[Gradient]:
    """Windows of one random vector: they take the memory of one gradient, and differ at every index."""
    rng = np.random.default_rng([seed, rank])
    noise = rng.standard_normal(size + (_GRADIENTS - 1) * _SHIFT, dtype=np.float32)
    return [noise[i * _SHIFT : i * _SHIFT + size] for i in range(_GRADIENTS)]


class Runner:
    """A SparseAllreduce whose results are all taken into one hash."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        contender: Contender,
        density: float,
        gradients: Sequence[Gradient],
        options: Options,
    ) -> None:
        self.contender = contender
        self.reducer = SparseAllreduce(
            comm,
            len(gradients[0]),
            density=density,
            algorithm=contender.algorithm,
            teams=contender.teams,
            backend=options.backend,
            wire=options.wire,
            wire_dtype=options.values_of(contender),
        )
        self._gradients = itertools.cycle(gradients)
        self._hash = hashlib.blake2b()
        self._result: SparseVector | None = None

    def run(self) -> None:
        """What is timed."""
        self.reduce(next(self._gradients))

    def reduce(self, grad: Gradient) -> SparseVector:
        self._result = self.reducer.reduce(grad)
        return self._result

    def digest(self) -> bytes:
        """The hash of all results so far. Hashing takes time, so it waits until someone asks between two reduces."""
        if self._result is not None:
            if self._result.nnz < self._result.size:  # else the indices are known
                self._hash.update(self._result.indices.data)
            self._hash.update(self._result.values.data)
            self._result = None
        return self._hash.digest()


class Baseline:
    """The MPI's own dense all-reduce of the same vectors, bare."""

    def __init__(self, comm: MPI.Intracomm, gradients: Sequence[Gradient]) -> None:
        self._comm, self._total = comm, np.empty_like(gradients[0])
        self._gradients = itertools.cycle(gradients)

    def run(self) -> None:
        self._comm.Allreduce(next(self._gradients), self._total)
