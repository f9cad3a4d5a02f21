"""Steps with a rank's own gradient while no round has finished, for the next gradient to be of weights less old."""

import numpy as np
import numpy.typing as npt
import torch

from spardl.torch.vector import ModelVector


class LocalSteps:
    """They are taken back before a round is applied: the gradients come with the rounds, and all ranks stay the same.

    A plain gradient step with the learning rates of the optimizer, whose own state it leaves alone.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, vector: ModelVector) -> None:
        self._optimizer, self._vector = optimizer, vector
        self._common: npt.NDArray[np.floating] | None = None  # weights without local steps

    @torch.no_grad()
    def step(self) -> None:
        if self._common is None:
            self._common = self._vector.weights()
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-float(group["lr"]))

    def take_back(self) -> None:
        if self._common is not None:
            self._vector.set_weights(self._common)
            self._common = None
