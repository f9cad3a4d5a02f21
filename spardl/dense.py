"""DenseAllreduce: sums all of a gradient; for what is not worth making sparse, and to compare with."""

from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.agreement import open_channel
from spardl.collectives.dense_ring import dense_ring
from spardl.effects import Collective
from spardl.runtime.group import CommLike, resolve
from spardl.runtime.mpi import Task, default_timeout
from spardl.runtime.traffic import Traffic
from spardl.selection import require_finite_gradient


class DenseAllreduce:
    """Sums gradients of ``size`` elements over the ranks of ``comm``; like SparseAllreduce, but nothing is left out."""

    def __init__(
        self, comm: CommLike, size: int, *, dtype: npt.DTypeLike = np.float32, timeout: float | None = None
    ) -> None:
        self._timeout = default_timeout() if timeout is None else float(timeout)
        self._group = resolve(comm, self._timeout)
        config = {"size": int(size), "dtype": np.dtype(dtype).name}
        self._channel = open_channel(self._group, lambda: config, self._timeout, "DenseAllreduce")
        self._sum = np.empty(size, dtype)
        self.traffic = Traffic()

    def start(self, grad: npt.NDArray[Any]) -> Task[npt.NDArray[Any]]:
        """Begins a reduce. The result is valid until the next one; it has the same bits on every rank."""
        task = Task(self._channel, self._reduce(grad), self._timeout, "DenseAllreduce.reduce")
        self.traffic = task.traffic
        return task

    def fail(self, error: Exception) -> None:
        """In place of a reduce: this rank cannot take part, so all ranks raise ``error``."""
        Task(self._channel, self._reduce(self._sum), self._timeout).abort(error)

    def _reduce(self, grad: npt.NDArray[Any]) -> Collective[npt.NDArray[Any]]:
        if grad.shape != self._sum.shape or grad.dtype != self._sum.dtype:
            raise ValueError(
                f"reduce: expected grad of shape {self._sum.shape} and dtype {self._sum.dtype}, "
                f"got {grad.shape} and {grad.dtype}"
            )
        require_finite_gradient(grad, self._group.me)
        yield from dense_ring(self._group.size, self._group.me, grad, self._sum)
        return self._sum
