"""Systems in which every rank trains a model of its own: what they save, and how they go on from it."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch

from spardl import saved
from spardl.agreement import check_together, gather_json
from spardl.protocols.models import Model
from spardl.protocols.preduce.notes import Assemble
from spardl.protocols.preduce.parts import DensePart
from spardl.torch import checkpoint
from spardl.torch.start import load_in_place
from spardl.torch.systems.handle import SystemHandle
from spardl.torch.systems.system import Setup, System
from spardl.torch.travelling import Travelling, saved_buffers, union_of

_PARTS = ("format", "kind", "ranks", "rank", "steps", "weights", "buffers", "optimizer", "system")


class OwnModelsSystem(System):
    """One rank's. ``optimizer_state``: whether that is averaged with the weights, adopted, or stays local."""

    def __init__(self, setup: Setup, optimizer_state: str = "local") -> None:
        super().__init__(setup)
        self._adopts = optimizer_state == "adopt"
        self._travelling = Travelling(setup.model, setup.vector, setup.optimizer, optimizer_state != "local")

    def meet(self, stays: bool) -> bool:
        """All get the average of all, exactly, and the iterations of whoever has seen the most."""
        group = self._setup.group
        mine = {"iteration": self.updates, "layout": self._travelling.layout, "more": self.told_at_meeting()}
        everyone = gather_json(group, mine, self._setup.timeout, f"{self.name}'s meeting")
        self.hear_at_meeting([told["more"] for told in everyone])
        iterations = [told["iteration"] for told in everyone]
        layout = union_of([told["layout"] for told in everyone])
        latest = max(iterations)
        freshest = iterations.index(latest)
        all_of_them = Assemble(0, tuple(range(group.size)), 1 / group.size, latest, freshest, group.me, True)
        offer = self._travelling.pack(layout)
        average = DensePart(self._adopts).average(all_of_them, group.me, offer)
        mean: Model = self._together(average, f"{self.name}'s average of all")
        self._travelling.unpack(mean, layout, state=not self._adopts or self.updates < latest)
        self.updates = latest
        return True

    def told_at_meeting(self) -> Any:
        """What this rank has to say to all, beside its model."""
        return None

    def hear_at_meeting(self, told: list[Any]) -> None:
        """By rank."""

    @property
    def residual(self) -> npt.NDArray[Any] | None:
        return None  # what is not sent stays in the model

    def owe(self, residual: npt.NDArray[Any]) -> None:
        raise NotImplementedError(f"{self.name} owes nothing")

    @abstractmethod
    def moved(self, iteration: int) -> None:
        """Weights were loaded that had seen so many iterations."""

    def own_state(self) -> dict[str, Any]:
        """What this rank knows beside model and optimizer, for a checkpoint."""
        return {}

    def check_own_state(self, state: Any, same_ranks: bool) -> Any:
        """Raises ValueError if ``own_state`` cannot have returned that; returns what ``load_own_state`` takes."""
        return None

    def load_own_state(self, checked: Any) -> None: ...


class OwnModelsHandle(SystemHandle):
    """Its states have weights, buffers and the optimizer's state of every rank, since they differ."""

    _system: OwnModelsSystem

    def state_dict(self) -> dict[str, Any]:
        """All that this rank goes on from, for ``torch.save``: one file per rank, at any time between two steps.

        Its weights, buffers and optimizer state are this rank's own, unless ``settle()`` has just made weights and
        buffers the average of all.
        """
        self._require_alive()
        return {
            "format": checkpoint.FORMAT,
            "kind": self._kind,
            "ranks": self._group.size,
            "rank": self._group.me,
            "steps": self._system.updates,
            "weights": {name: p.detach().cpu().clone() for name, p in self._parameters.items()},
            "buffers": {name: b.detach().cpu().clone() for name, b in saved_buffers(self._model).items()},
            "optimizer": _on_host(self._optimizer.state_dict()),
            "system": self._thread.door.look(self._system.own_state),
        }

    def gathered_state_dict(self) -> dict[str, Any] | None:
        """All ranks' states as one, and the average of their models, on rank 0 (None on the others).

        Loaded on as many ranks, each goes on with its own; on another number, all with the average under ``"average"``,
        which is also what to evaluate. All ranks call it.
        """
        states = checkpoint.gather(self._group, self.state_dict(), self._timeout)
        if states is None:
            return None
        average = {part: _mean([state[part] for state in states]) for part in ("weights", "buffers")}
        return {
            "format": checkpoint.FORMAT,
            "kind": self._kind,
            "ranks": len(states),
            "average": average,
            "states": states,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a ``state_dict()`` of this rank, or a gathered one, also of another number of ranks.

        All ranks call it, before training or after ``settle()``. If the state of one rank is damaged or does not fit,
        all ranks raise ValueError, and nothing has changed. With another number of ranks than were saved all begin
        with the average, and ranks beyond those saved take an optimizer's state over from one of them.
        """
        self._require_settled("load_state_dict()")

        def check() -> tuple[Mapping[str, Any], Any]:
            mine, same_ranks = self._state_for(state)
            self._require_fitting(mine)
            return mine, self._system.check_own_state(mine["system"], same_ranks)

        mine, own = check_together(self._group, check, self._timeout, "load_state_dict")
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(mine["weights"][name])
            for name, buffer in saved_buffers(self._model).items():
                buffer.copy_(mine["buffers"][name])
        load_in_place(self._optimizer, mine["optimizer"])
        self._system.load_own_state(own)
        self._system.moved(mine["steps"])

    def _require_alive(self) -> None:
        if (error := self._thread.door.error) is not None:
            raise error

    # -- checks --------------------------------------------------------------------------------------------------------

    def _state_for(self, state: Any) -> tuple[Mapping[str, Any], bool]:
        """What this rank goes on from, and whether as many ranks had saved it."""
        ranks, rank = self._group.size, self._group.me
        for name, expected in (("format", checkpoint.FORMAT), ("kind", self._kind)):
            if saved.part(state, name) != expected:
                raise saved.unfit(f"a state of {name}", repr(expected), state[name])
        if "states" not in state:
            self._require_one_rank(state)
            if (state["ranks"], state["rank"]) != (ranks, rank):
                raise ValueError(
                    f"load_state_dict: this is the state of rank {state['rank']} of {state['ranks']}, and this process "
                    f"is rank {rank} of {ranks}. To change the number of ranks use gathered_state_dict()."
                )
            return state, True
        saved.nothing_but(("format", "kind", "ranks", "average", "states"), state, "the state")
        states = saved.sequence(state["states"], "states", saved.integer(saved.part(state, "ranks"), "ranks", 1))
        for number, one in enumerate(states):
            self._require_one_rank(one)
            if (one["ranks"], one["rank"]) != (len(states), number):
                raise saved.unfit("states", f"of ranks 0 to {len(states) - 1} in order", [s["rank"] for s in states])
        if len(states) == ranks:
            return states[rank], True
        average = saved.mapping(saved.part(state, "average"), "the average")
        parts = {part: saved.part(average, part) for part in ("weights", "buffers")}
        latest = max(one["steps"] for one in states)
        return {**states[rank % len(states)], **parts, "steps": latest}, False

    def _require_one_rank(self, state: Any) -> None:
        for name in _PARTS:
            saved.part(state, name)
        saved.nothing_but(_PARTS, state, "the state")
        saved.integer(state["rank"], "rank", 0, saved.integer(state["ranks"], "ranks", 1) - 1)
        saved.integer(state["steps"], "steps", 0)

    def _require_fitting(self, state: Mapping[str, Any]) -> None:
        _require_tensors(state["weights"], dict(self._parameters), "parameter")
        _require_tensors(state["buffers"], saved_buffers(self._model), "buffer")
        _require_optimizer(state["optimizer"], self._optimizer)


def _require_tensors(state: Any, expected: Mapping[str, torch.Tensor], what: str) -> None:
    for name, tensor in expected.items():
        value = saved.mapping(state, f"{what}s").get(name)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            raise saved.unfit(f"{what} {name!r}", "to be a tensor", value)
        if (value.shape, value.dtype) != (tensor.shape, tensor.dtype):
            shape = f"of shape {list(tensor.shape)} and {tensor.dtype}"
            raise saved.unfit(f"{what} {name!r}", shape, (list(value.shape), value.dtype))
        if what == "parameter" and not bool(torch.isfinite(value).all()):
            raise ValueError(f"load_state_dict: {what} {name!r} has values that are not finite")
    saved.nothing_but(expected, state, f"the state of {what}s")


def _require_optimizer(state: Any, optimizer: torch.optim.Optimizer) -> None:
    groups = saved.sequence(saved.part(state, "param_groups"), "param_groups", len(optimizer.param_groups))
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        saved.sequence(saved.part(group, "params"), "params", len(own["params"]))
    known = {number for group in groups for number in group["params"]}
    for number, values in saved.mapping(saved.part(state, "state"), "the optimizer's state").items():
        if number not in known:
            raise saved.unfit("the optimizer's state", f"of parameters {sorted(known)[:8]}", number)
        for name, value in saved.mapping(values, "the optimizer's state of a parameter").items():
            if isinstance(value, torch.Tensor) and not bool(torch.isfinite(value).all()):
                raise ValueError(f"load_state_dict: the optimizer's {name!r} has values that are not finite")


def _mean(states: list[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """By name; the largest where a tensor has integers."""
    averages = {}
    for name, first in states[0].items():
        stacked = torch.stack([state[name] for state in states])
        if first.is_floating_point() or first.is_complex():
            averages[name] = stacked.to(torch.promote_types(first.dtype, torch.float32)).mean(0).to(first.dtype)
        else:
            averages[name] = stacked.amax(0)
    return averages


def _on_host(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {name: _on_host(value) for name, value in state.items()}
    return type(state)(map(_on_host, state)) if isinstance(state, list | tuple) else state
