"""Which gradients are new, and whether one was changed after it had come.

A gradient is known by its tensor object and that tensor's version, which every in-place operation raises.
"""

from collections.abc import Mapping

import torch


class GradientWatch:
    """Looks at the ``grad`` of parameters, by name."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self._come: dict[str, tuple[torch.Tensor | None, int]] = {}
        self._sent: set[str] = set()
        self._written: dict[str, tuple[torch.Tensor | None, int]] = {}

    def new(self, name: str) -> torch.Tensor | None:
        """This rank's contribution: None if there is none, or only the result that we wrote there last time."""
        return None if self._is(self._written, name) else self._parameters[name].grad

    def note_come(self, name: str) -> None:
        """From now on until the cycle ends nobody may change it."""
        self._come[name] = self._now(name)

    def note_sent(self, name: str) -> None:
        self.note_come(name)
        self._sent.add(name)

    def was_sent(self, name: str) -> bool:
        return name in self._sent

    def changed(self) -> str | None:
        """A gradient that was changed after it had come."""
        return next((name for name in self._come if not self._is(self._come, name)), None)

    def end_cycle(self) -> None:
        self._come, self._sent = {}, set()

    def note_written(self) -> None:
        """All gradients are results now."""
        self._written = {name: self._now(name) for name in self._parameters}

    def forget_written(self) -> None:
        self._written = {}

    def _now(self, name: str) -> tuple[torch.Tensor | None, int]:
        grad = self._parameters[name].grad
        return grad, -1 if grad is None else grad._version

    def _is(self, noted: Mapping[str, tuple[torch.Tensor | None, int]], name: str) -> bool:
        if name not in noted:
            return False
        (then, old_version), (now, version) = noted[name], self._now(name)
        return now is then and version == old_version
