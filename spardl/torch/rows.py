"""Sparse gradients of embeddings: every rank's touched rows are gathered and added in rank order.

Nothing of the vocabulary's size is ever allocated, nothing is left out, and so there is no residual.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spardl.agreement import open_channel
from spardl.collectives.bruck import bruck
from spardl.effects import Bytes, Collective
from spardl.errors import WireError
from spardl.kernels.api import Values
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task
from spardl.selection import require_finite_gradient
from spardl.torch.layout import ROWS

Rows = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]  # which, and their values, one row each


class RowBucket:
    """One parameter whose gradient is a sparse tensor. The same interface as FlatBucket."""

    momentum = None
    residual: Values | None = None
    kind = ROWS

    def __init__(
        self,
        name: str,
        parameter: torch.nn.Parameter,
        group: Group,
        dtype: torch.dtype,
        timeout: float,
        warn_after: float | None = None,
    ) -> None:
        self.name, self.parameter = name, parameter
        self.size = parameter.numel()
        self._torch_dtype, self._dtype = dtype, np.dtype(str(dtype).removeprefix("torch."))
        self._group, self._timeout = group, timeout
        config = {"name": name, "shape": list(parameter.shape), "dtype": self._dtype.name}
        self._channel = open_channel(group, lambda: config, timeout, "a bucket of sparse rows", warn_after)
        self.names = [name]
        self._mine: Rows = self._nothing()
        self.task: Task[Rows] | None = None
        self.entries = 0

    def _nothing(self) -> Rows:
        return np.empty(0, np.int64), np.empty((0, *self.parameter.shape[1:]), self._dtype)

    @property
    def dtype(self) -> str:
        return self._dtype.name

    @property
    def dense_bytes(self) -> int:
        return 2 * (self._group.size - 1) * self.size * self._dtype.itemsize // self._group.size

    # -- gradients in --------------------------------------------------------------------------------------------------

    def take(self, _position: int, grad: torch.Tensor | None, unscale: float) -> None:
        if grad is None:
            self._mine = self._nothing()
            return
        if not grad.is_sparse or grad.sparse_dim() != 1:
            raise TypeError(
                f"parameter {self.name!r}: expected a sparse gradient of rows, as in the first step, got layout "
                f"{grad.layout}; use handle.remove() and distribute() again after such a change"
            )
        grad = grad.coalesce()
        values = grad.values().detach().to("cpu", self._torch_dtype).numpy() * self._dtype.type(unscale)
        self._mine = (grad.indices()[0].cpu().numpy().copy(), values)

    def give_back(self, _position: int, _factor: float) -> None:
        """The parameter has kept its gradient."""

    def squared_norm(self) -> float:
        return float(np.sum(np.square(self._mine[1], dtype=np.float64)))

    def scale(self, factor: float) -> None:
        self._mine = (self._mine[0], self._mine[1] * self._dtype.type(factor))

    # -- reduction -----------------------------------------------------------------------------------------------------

    def start(self) -> Task[Rows]:
        self.task = Task(self._channel, self._gather(), self._timeout, f"gathering the rows of {self.name!r}")
        return self.task

    def _gather(self) -> Collective[Rows]:
        rows, values = self._mine
        require_finite_gradient(values.reshape(-1), self._group.me)
        frames = yield from bruck(range(self._group.size), self._group.me, _to_frame(rows, values))
        return add_rows([_from_frame(frame, self._dtype, self.parameter.shape) for frame in frames])

    def fail(self, error: Exception) -> None:
        (self.task or Task(self._channel, self._gather(), self._timeout)).abort(error)

    def undo(self) -> None:
        """Nothing is remembered between steps."""

    def parameter_at(self, _index: int) -> str:
        return self.name

    # -- gradients out -------------------------------------------------------------------------------------------------

    def finish(self, scale: float, _weight_decay: Mapping[str, float]) -> None:
        assert self.task is not None
        rows, values = self.task.wait()
        mean = values / self._dtype.type(self._group.size)
        if scale != 1:
            mean = mean * self._dtype.type(scale)
        self.entries = mean.size
        if self.parameter.requires_grad:
            self._hand_over(rows, mean)

    def poison(self) -> None:
        """Makes one gradient infinite, for a GradScaler to find."""
        self._hand_over(np.zeros(1, np.int64), np.full((1, *self.parameter.shape[1:]), np.inf, self._dtype))

    def _hand_over(self, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
        self.parameter.grad = torch.sparse_coo_tensor(
            torch.from_numpy(rows[None]),
            torch.from_numpy(values),
            self.parameter.shape,
            dtype=self.parameter.dtype,
            device=self.parameter.device,
            is_coalesced=True,
            check_invariants=False,
        )

    def state_dict(self) -> dict[str, Any]:
        return {}

    def prepare_load(self, state: Mapping[str, Any], *, same_ranks: bool) -> Callable[[], None]:
        """There is nothing to load."""
        return lambda: None


def add_rows(parts: list[Rows]) -> Rows:
    """The sum of sets of rows, by row; rows that several parts have are added in the order of the parts."""
    rows = np.concatenate([rows for rows, _ in parts])
    values = np.concatenate([values for _, values in parts])
    if len(rows) == 0:
        return rows, values
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    firsts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return rows[firsts], np.add.reduceat(values[order], firsts, axis=0)


def _to_frame(rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Bytes:
    count = np.array([len(rows)], np.int64)
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in (count, rows, values)])


def _from_frame(frame: Bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Rows:
    """Rows of a parameter of that shape; raises WireError unless they are in order and within it."""
    count = int(frame[:8].view(np.int64)[0]) if len(frame) >= 8 else -1
    row_bytes = 8 + math.prod(shape[1:]) * dtype.itemsize
    if count < 0 or len(frame) != 8 + count * row_bytes:
        raise WireError(f"{len(frame)} bytes arrived that are not rows of a parameter of shape {list(shape)}")
    end = 8 * (1 + count)
    rows = frame[8:end].view(np.int64)
    if count and not (rows[0] >= 0 and rows[-1] < shape[0] and np.all(rows[1:] > rows[:-1])):
        raise WireError(f"rows arrived that are out of order, or beyond the {shape[0]} of the parameter")
    return rows, frame[end:].view(dtype).reshape(count, *shape[1:])
