"""GradScaler and synchronisation in the right order.

A scaler looks at the gradients before the optimizer's step, and skips the step if one is infinite. So gradients have
to be synchronised before the scaler looks; then what it sees is the same on all ranks, and all scalers do the same.
It may be given the optimizer, or one that wraps it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


class ScalerGuard:
    """Synchronises before ``scaler.unscale_(optimizer)`` and ``scaler.step(optimizer)``; nothing else changes."""

    def __init__(
        self,
        scaler: torch.amp.GradScaler,
        optimizers: Sequence[torch.optim.Optimizer],
        synchronize: Callable[[], None],
        stepped: Callable[[], None],
    ) -> None:
        self._scaler = scaler
        original_unscale, original_step = scaler.unscale_, scaler.step

        def is_ours(which: torch.optim.Optimizer) -> bool:
            return any(which is one for one in optimizers)

        def unscale_(which: torch.optim.Optimizer) -> None:
            if is_ours(which):
                synchronize()
            original_unscale(which)

        def step(which: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if not is_ours(which):
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

    @property
    def skips(self) -> bool:
        """Whether the scaler skips steps with infinite gradients."""
        return bool(self._scaler.is_enabled())

    def problem(self) -> Exception | None:
        return None

    def remove(self) -> None:
        """Gives the scaler its own methods back."""
        del self._scaler.unscale_, self._scaler.step


class NoScaler:
    """In place of a ScalerGuard; finds out when there is a scaler after all.

    A scaler that we do not know would unscale this rank's gradients after they were sent, and skip steps on this rank
    alone. To optimizers that can unscale by themselves it leaves both, and tells them the scale by setting
    ``grad_scale``. So we let ours look like one, and notice.
    """

    scale = 1.0
    skips = False

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._own = [(vars(optimizer), vars(optimizer).get(_UNSCALES_ITSELF)) for optimizer in optimizers]
        for attributes, _ in self._own:
            attributes[_UNSCALES_ITSELF] = True

    def problem(self) -> Exception | None:
        if any("grad_scale" in attributes for attributes, _ in self._own):
            return RuntimeError("this optimizer is stepped by a GradScaler: use distribute(..., scaler=scaler)")
        return None

    def remove(self) -> None:
        """Lets the optimizers look as before."""
        for attributes, own in self._own:
            if own is None:
                del attributes[_UNSCALES_ITSELF]
            else:
                attributes[_UNSCALES_ITSELF] = own


_UNSCALES_ITSELF = "_step_supports_amp_scaling"
