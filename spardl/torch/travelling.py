"""A model as vectors: its weights, and what travels with them when models are averaged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spardl.protocols.models import Model, Values
from spardl.torch.vector import ModelVector

Tensors = dict[str, torch.Tensor]


class Travelling:
    """One rank's model and optimizer. ``with_state``: the optimizer's state travels too.

    ``Model.values`` has weights, float buffers and the optimizer's moments; ``counts`` integer buffers; ``numbers`` the
    optimizer's step counters.
    """

    def __init__(
        self, model: torch.nn.Module, vector: ModelVector, optimizer: torch.optim.Optimizer, with_state: bool
    ) -> None:
        self._vector, self._optimizer = vector, optimizer
        self._state = _OptimizerState(optimizer, vector) if with_state else None
        self._owners = _owners_of_buffers(model)
        self._values: Values = np.empty(0, vector.dtype)

    @property
    def layout(self) -> str:
        """What of the optimizer's state there is: all ranks of a group must have the same."""
        return "" if self._state is None else self._state.layout()

    def pack(self, layout: str | None = None) -> Model:
        """What is there now; in the same vector every time. ``layout``: of the optimizer's state; None: its own."""
        floats, integers = self._buffers()
        sizes = [self._vector.size, sum(buffer.numel() for buffer in floats)]
        moments, counters = _names(self.layout if layout is None else layout)
        total = sum(sizes) + len(moments) * self._vector.size
        if len(self._values) != total:
            self._values = np.empty(total, self._vector.dtype)
        self._vector.read_weights(self._values[: sizes[0]])
        for buffer, view in _views(floats, self._values[sizes[0] :]):
            view.copy_(buffer)
        numbers = np.zeros(0)
        if self._state is not None:
            numbers = self._state.read(moments, counters, self._values[sum(sizes) :])
        counts = np.empty(sum(buffer.numel() for buffer in integers), np.int64)
        for buffer, view in _views(integers, counts):
            view.copy_(buffer)
        return Model(self._values, sum(sizes), counts, numbers)

    def _buffers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Floats and integers. Code may have put other tensors in the place of those at the start."""
        found = (getattr(module, name).detach() for module, name in self._owners)
        buffers = [torch.view_as_real(buffer) if buffer.is_complex() else buffer for buffer in found]
        floats = [buffer for buffer in buffers if buffer.is_floating_point()]
        return floats, [buffer for buffer in buffers if not buffer.is_floating_point()]

    @torch.no_grad()
    def unpack(self, model: Model, layout: str | None = None, *, state: bool = True) -> None:
        """Writes it into the model, in place; ``state``: and into the optimizer's state."""
        size = self._vector.size
        self._vector.set_weights(model.values[:size])
        floats, integers = self._buffers()
        for buffers, part in ((floats, model.values[size:]), (integers, model.counts)):
            for buffer, view in _views(buffers, part):
                buffer.copy_(view)
        if state and self._state is not None:
            moments, counters = _names(self.layout if layout is None else layout)
            self._state.write(moments, counters, model.values[model.state :], model.numbers)


def saved_buffers(model: torch.nn.Module) -> Tensors:
    """Those that ``state_dict`` has: others can be made anew from the model's code."""
    names = set(model.state_dict(keep_vars=True))
    return {name: buffer for name, buffer in model.named_buffers() if name in names}


def _owners_of_buffers(model: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """Of those that are saved."""
    modules = dict(model.named_modules())
    places = [name.rpartition(".") for name in saved_buffers(model)]
    return [(modules[prefix], name) for prefix, _, name in places]


def _views(tensors: list[torch.Tensor], vector: npt.NDArray[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    flat, start = torch.from_numpy(vector), 0
    for tensor in tensors:
        yield tensor, flat[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()


# -- the optimizer's state ---------------------------------------------------------------------------------------------


class _OptimizerState:
    """Moments, which have the shape of their parameter, and counters, which are single numbers. Absent ones are 0."""

    def __init__(self, optimizer: torch.optim.Optimizer, vector: ModelVector) -> None:
        self._optimizer, self._vector = optimizer, vector

    def layout(self) -> str:
        """The names of both."""
        moments, counters = set[str](), set[str]()
        for parameter in self._vector.parameters():
            for name, value in self._optimizer.state.get(parameter, {}).items():
                if value is not None:
                    (moments if _is_moment(name, value, parameter) else counters).add(name)
        return _layout(moments, counters)

    def read(self, moments: list[str], counters: list[str], values: Values) -> npt.NDArray[np.float64]:
        """Moments into ``values``, one after the other; returns the counters."""
        for number, name in enumerate(moments):
            part = values[number * self._vector.size : (number + 1) * self._vector.size]
            for parameter, view in self._vector.views(part):
                moment = self._optimizer.state.get(parameter, {}).get(name)
                if moment is None:
                    view.zero_()
                else:
                    view.copy_(moment)
        parameters = list(self._vector.parameters())
        numbers = [float(self._optimizer.state.get(p, {}).get(name, 0)) for name in counters for p in parameters]
        return np.array(numbers, np.float64)

    def write(self, moments: list[str], counters: list[str], values: Values, numbers: npt.NDArray[np.float64]) -> None:
        parameters = list(self._vector.parameters())
        of_each = [dict(self._vector.views(part)) for part in np.split(values, len(moments))] if moments else []
        counted = numbers.reshape(len(counters), len(parameters))
        for place, parameter in enumerate(parameters):
            own = dict(zip(moments, (views[parameter] for views in of_each), strict=True))
            self._write_one(parameter, own, dict(zip(counters, counted[:, place].tolist(), strict=True)))

    def _write_one(self, parameter: torch.nn.Parameter, moments: Tensors, counters: dict[str, float]) -> None:
        state = self._optimizer.state.get(parameter) or {}
        if not state and not any(moment.any() for moment in moments.values()) and not any(counters.values()):
            return  # nobody has any yet
        for name, moment in moments.items():
            if state.get(name) is None:
                state[name] = torch.zeros_like(parameter)
            state[name].copy_(moment)
        for name, count in counters.items():
            kept = state.get(name)
            if isinstance(kept, torch.Tensor):
                kept.fill_(count)
            else:
                state[name] = torch.tensor(count) if kept is None else type(kept)(count)
        self._optimizer.state[parameter] = state


def _layout(moments: set[str], counters: set[str]) -> str:
    """A name in both has a single number for each parameter, also for those that are single numbers: a counter."""
    return ",".join(sorted(moments - counters)) + ";" + ",".join(sorted(counters))


def _names(layout: str) -> tuple[list[str], list[str]]:
    moments, _, counters = layout.partition(";")
    return [name for name in moments.split(",") if name], [name for name in counters.split(",") if name]


def union_of(layouts: list[str]) -> str:
    """What one of them at least has."""
    both = [_names(layout) for layout in layouts]
    moments, counters = ({name for names in kind for name in names} for kind in zip(*both, strict=True))
    return _layout(moments, counters)


def _is_moment(name: str, value: Any, parameter: torch.nn.Parameter) -> bool:
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == parameter.shape:
        # A single number may be either; counters are called so.
        return not (parameter.dim() == 0 and name == "step")
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        return False
    kind = f"tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
    raise TypeError(
        f"PartialReduce: this optimizer's state {name!r} is a {kind}, which has no mean; use optimizer_state='local'"
    )
