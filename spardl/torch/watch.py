"""Which gradients are new, and whether one was changed after it was sent.

A gradient is known by its tensor object and that tensor's version, which every in-place operation raises.
"""

from collections.abc import Mapping

import torch


class GradientWatch:
    """Looks at the ``grad`` of parameters, by name."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self._sent: dict[str, tuple[torch.Tensor | None, int]] = {}
        self._written: dict[str, tuple[torch.Tensor | None, int]] = {}

    def new(self, name: str) -> torch.Tensor | None:
        """This rank's contribution: None if there is none, or only the result that we wrote there last time."""
        return None if self._is(self._written, name) else self._parameters[name].grad

    def note_sent(self, name: str) -> None:
        self._sent[name] = self._now(name)

    def was_sent(self, name: str) -> bool:
        return name in self._sent

    def changed_since_sent(self, name: str) -> bool:
        return not self._is(self._sent, name)

    def forget_sent(self) -> None:
        self._sent = {}

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
