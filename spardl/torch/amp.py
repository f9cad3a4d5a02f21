"""GradScaler and synchronisation in the right order.

A scaler looks at the gradients before the optimizer's step, and skips the step if one is infinite. So gradients have
to be synchronised before the scaler looks; then what it sees is the same on all ranks, and all scalers do the same.
"""

from collections.abc import Callable
from typing import Any

import torch


class ScalerGuard:
    """Synchronises before ``scaler.unscale_(optimizer)`` and ``scaler.step(optimizer)``; nothing else changes."""

    def __init__(
        self,
        scaler: torch.amp.GradScaler,
        optimizer: torch.optim.Optimizer,
        synchronize: Callable[[], None],
        stepped: Callable[[], None],
    ) -> None:
        self._scaler = scaler
        original_unscale, original_step = scaler.unscale_, scaler.step

        def unscale_(which: torch.optim.Optimizer) -> None:
            if which is optimizer:
                synchronize()
            original_unscale(which)

        def step(which: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if which is not optimizer:
                return original_step(which, *args, **kwargs)
            synchronize()
            result = original_step(which, *args, **kwargs)
            stepped()  # the optimizer does not say so when its step was skipped
            return result

        self._put("unscale_", unscale_)
        self._put("step", step)

    def _put(self, name: str, method: Callable[..., Any]) -> None:
        """On this one object, where it hides the class's method."""
        self._scaler.__dict__[name] = method

    @property
    def scale(self) -> float:
        return float(self._scaler.get_scale())

    def remove(self) -> None:
        """Gives the scaler its own methods back."""
        del self._scaler.unscale_, self._scaler.step
