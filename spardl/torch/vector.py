"""All trained parameters seen as one vector: their gradients, their weights."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spardl.errors import NonFiniteGradient
from spardl.selection import require_finite_gradient
from spardl.torch.flat import hand_over
from spardl.torch.layout import memory_strides


class ModelVector:
    """Parameters one after the other, each in its own order of memory; float64 if one of them is, else float32."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._ids = {id(parameter) for parameter in self._parameters.values()}
        wide = any(parameter.dtype == torch.float64 for parameter in parameters.values())
        self.dtype = np.dtype(np.float64 if wide else np.float32)
        self.size = sum(parameter.numel() for parameter in parameters.values())

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        return self._parameters.values()

    def has(self, parameter: torch.nn.Parameter) -> bool:
        return id(parameter) in self._ids

    def gradient(self) -> npt.NDArray[Any]:
        """A new vector; zero where there is no gradient, also in rows that a sparse gradient does not have."""
        vector = np.empty(self.size, self.dtype)
        for parameter, view in self.views(vector):
            grad = parameter.grad
            if grad is None:
                view.zero_()
            elif grad.layout == torch.strided:
                view.copy_(grad)
            else:
                view.zero_().add_(grad.to(view.device))
        return vector

    def require_finite_gradients(self, rank: int) -> None:
        """As ``require_finite``, one parameter at a time."""
        for name, parameter in self._parameters.items():
            grad = parameter.grad
            if grad is None:
                continue
            values = grad.coalesce().values() if grad.layout == torch.sparse_coo else grad
            # One number per parameter; only where that is not finite, which may be an overflow, all are looked at.
            if bool(torch.isfinite(values.detach().sum())):
                continue
            finite = torch.isfinite(values.detach()).flatten()
            if not bool(finite.all()):
                index = int(torch.argmin(finite.to(torch.uint8)))
                value = values.flatten()[index].item()
                raise NonFiniteGradient(
                    f"non-finite gradient of {name!r} on rank {rank} at index {index}: {value}", rank=rank, index=index
                )

    def require_finite(self, gradient: npt.NDArray[Any], rank: int) -> None:
        """Raises with the name of the parameter whose gradient, on this ``rank``, is not finite."""
        try:
            require_finite_gradient(gradient, rank)
        except NonFiniteGradient as error:
            name, index = self.place_of(error.index)
            raise NonFiniteGradient(
                f"non-finite gradient of {name!r} on rank {rank} at index {index}: {gradient[error.index]}",
                rank=rank,
                index=error.index,
            ) from None

    def set_gradient(self, vector: npt.NDArray[Any]) -> None:
        for parameter, view in self.views(vector):
            if parameter.grad is not None and parameter.grad.layout != torch.strided:
                parameter.grad = None  # has no room for all rows
            hand_over(parameter, view)

    def weights(self) -> npt.NDArray[Any]:
        """A new vector."""
        vector = np.empty(self.size, self.dtype)
        self.read_weights(vector)
        return vector

    def read_weights(self, vector: npt.NDArray[Any]) -> None:
        """Into a vector that is there."""
        for parameter, view in self.views(vector):
            view.copy_(parameter.detach())

    @torch.no_grad()
    def set_weights(self, vector: npt.NDArray[Any]) -> None:
        for parameter, view in self.views(vector):
            parameter.copy_(view)

    @torch.no_grad()
    def move_weights(self, delta: npt.NDArray[Any]) -> None:
        for parameter, view in self.views(delta):
            parameter.add_(view)

    def place_of(self, index: int) -> tuple[str, int]:
        """The parameter that an element belongs to, and its index there, in the parameter's order of memory."""
        for name, parameter in self._parameters.items():
            if index < parameter.numel():
                return name, index
            index -= parameter.numel()
        raise IndexError(f"the vector has {self.size} elements")

    def describe(self, kind: str) -> dict[str, Any]:
        """As checkpoints name the parameters of a bucket."""
        return {
            "kind": kind,
            "names": list(self._parameters),
            "shapes": [list(parameter.shape) for parameter in self._parameters.values()],
            "strides": [list(memory_strides(parameter)) for parameter in self._parameters.values()],
            "dtype": self.dtype.name,
        }

    def views(self, vector: npt.NDArray[Any]) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Of each parameter its part of the vector, in its own shape."""
        flat, start = torch.from_numpy(vector), 0
        for parameter in self._parameters.values():
            yield parameter, flat.as_strided(parameter.size(), memory_strides(parameter), start)
            start += parameter.numel()
