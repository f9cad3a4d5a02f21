"""The numbers of an optimizer that a scheduler may change: a round is applied with one rank's, on all of them."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import torch

RATE = "lr"


class Terms:
    """One rank's: ``tell`` its numbers as text, and be ``on`` those of a round for one step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._counted: set[tuple[int, str]] = set()  # group and name of numbers that step() itself changes

    def tell(self) -> str:
        return json.dumps([_numbers(group) for group in self._optimizer.param_groups])

    @contextlib.contextmanager
    def on(self, terms: str, share: float = 1.0) -> Iterator[None]:
        """Inside, the numbers are those of ``terms``, and learning rates are multiplied by ``share``.

        Afterwards they are this rank's again, but for those that the step inside has changed. Such counters go from
        round to round on every rank alike, and no terms set them again.
        """
        groups = self._optimizer.param_groups
        own = [_kept(group) for group in groups]
        meant: list[dict[str, Any]] = []
        try:
            # Groups that were added after the terms were told keep their numbers: no round has gradients for them.
            for number, (group, numbers) in enumerate(zip(groups, json.loads(terms), strict=False)):
                if RATE in numbers:
                    numbers[RATE] *= share
                _set(group, {name: n for name, n in numbers.items() if (number, name) not in self._counted})
            meant = [_numbers(group) for group in groups]
            yield
            self._note_counters(meant)
        finally:
            for number, (group, kept) in enumerate(zip(groups, own, strict=True)):
                _restore(group, kept, {name for at, name in self._counted if at == number})

    def _note_counters(self, meant: list[dict[str, Any]]) -> None:
        for number, (group, before) in enumerate(zip(self._optimizer.param_groups, meant, strict=True)):
            now = _numbers(group)
            changed = {name for name in now if repr(now[name]) != repr(before.get(name))}
            self._counted |= {(number, name) for name in changed - {RATE}}


def is_number(value: object) -> bool:
    """Also a tensor of one element, which schedulers change in place."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.dtype != torch.bool
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_told(value: object) -> bool:
    """Numbers, and tuples of them such as Adam's betas."""
    return is_number(value) or (isinstance(value, tuple | list) and all(map(is_number, value)))


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in group.items() if name != "params" and _is_told(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, torch.Tensor) else value


def _set(group: dict[str, Any], numbers: dict[str, Any]) -> None:
    group.update({name: _with_value(group.get(name), value) for name, value in numbers.items()})


@torch.no_grad()
def _with_value(present: Any, value: Any) -> Any:
    """``value`` in the place of ``present``. A tensor is filled, since its owner or a graph may hold it."""
    if isinstance(value, list):
        parts = present if isinstance(present, tuple | list) and len(present) == len(value) else [None] * len(value)
        kind = list if isinstance(present, list) else tuple
        return kind(_with_value(*pair) for pair in zip(parts, value, strict=True))
    if isinstance(present, torch.Tensor) and present.numel() == 1:
        return present.fill_(value)
    return value


def _kept(group: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By name: the very object, and a copy of its value."""
    return {name: (value, _plain(value)) for name, value in group.items() if name != "params" and _is_told(value)}


def _restore(group: dict[str, Any], kept: dict[str, tuple[Any, Any]], changed: set[str]) -> None:
    for name in [name for name in _numbers(group) if name not in kept and name not in changed]:
        del group[name]
    for name, (value, plain) in kept.items():
        if name not in changed:
            _with_value(value, plain)  # fills tensors
            group[name] = value
