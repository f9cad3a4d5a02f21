"""Momentum correction: momentum before selection, as in Deep Gradient Compression.

With momentum in the optimizer, a gradient that waited in the residual enters the velocity late, and as one big step.
Here each rank turns its gradient into a velocity first, and that is what is accumulated, selected and sent. Summing
is linear, so with everything sent and no masking the result is that of momentum in the optimizer.

Weight decay stays in the optimizer, which would then apply it without momentum. Its own velocity is the same on all
ranks (weights are), so it is kept here and added to the result.
"""

from typing import Any

import numpy as np
import torch

from spardl.kernels.api import Values
from spardl.sparse import SparseVector


class MomentumCorrection:
    """The velocities of one bucket. They change when ``commit`` says that the hand-in went well, not before."""

    def __init__(self, size: int, dtype: Any, momentum: float, nesterov: bool, masking: bool) -> None:
        self._momentum = momentum
        self._masking = masking
        self.velocity: Values = np.zeros(size, dtype)
        self._next = np.empty(size, dtype)
        self._ahead: Values | None = np.empty(size, dtype) if nesterov else None
        self.decay_velocity: Values | None = None  # of weight decay; only where there is any

    def hand_in(self, grad: Values) -> Values:
        """What is handed in for ``grad``, which is left alone."""
        np.multiply(self.velocity, self._momentum, out=self._next)
        self._next += grad
        if self._ahead is None:
            return self._next
        np.multiply(self._next, self._momentum, out=self._ahead)
        self._ahead += grad
        return self._ahead

    def commit(self, result: SparseVector) -> None:
        """The hand-in went well, and this is what came of it."""
        self.velocity, self._next = self._next, self.velocity
        if self._masking:
            self.velocity[result.indices] = 0

    def restore(self, velocity: Values, decay_velocity: Values | None) -> None:
        """Goes on from copies of these."""
        self.velocity[:] = velocity
        self.decay_velocity = None if decay_velocity is None else decay_velocity.copy()

    def add_decay(self, start: int, parameter: torch.Tensor, weight_decay: float, grad: torch.Tensor) -> None:
        """Adds to the result's part ``grad``, which begins at ``start``, what the optimizer's own decay term lacks."""
        if weight_decay == 0:
            return
        if self.decay_velocity is None:
            self.decay_velocity = np.zeros_like(self.velocity)
        stop = start + parameter.numel()
        velocity = torch.from_numpy(self.decay_velocity[start:stop]).as_strided(grad.size(), grad.stride())
        if self._ahead is None:  # the update is m·(old velocity) + decay; the optimizer adds the decay
            grad.add_(velocity, alpha=self._momentum)
        velocity.mul_(self._momentum).add_(parameter.detach().to(velocity), alpha=weight_decay)
        if self._ahead is not None:  # the update is decay + m·(new velocity)
            grad.add_(velocity, alpha=self._momentum)
