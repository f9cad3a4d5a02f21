"""A round's result becomes one step of the optimizer, the same on all ranks."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from spardl.protocols.rna.parts import Sum
from spardl.torch.flat import write_mean
from spardl.torch.sync import RNA
from spardl.torch.terms import RATE, Terms, is_number
from spardl.torch.vector import ModelVector


class RoundStep:
    """The gradient is the mean over the round's contributors.

    With ``linear_scaling`` every learning rate is, for this step, multiplied by the contributors' share of all ranks.
    So one contributor of four moves the weights a quarter as far as four, whatever the optimizer makes of gradients;
    momentum, weight decay and the like are as the optimizer has them.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        step: Callable[[], Any],
        vector: ModelVector,
        terms: Terms,
        *,
        linear_scaling: bool,
    ) -> None:
        self._optimizer, self._step, self._vector, self._terms = optimizer, step, vector, terms
        self._linear_scaling = linear_scaling
        self._mean = np.zeros(vector.size, vector.dtype)

    def apply(self, result: Sum, terms: str, ranks: int) -> bool:
        """False if nobody contributed: no step is made then, which would move weights by momentum and decay alone."""
        if result.contributors == 0:
            return False
        write_mean(result.vector, self._mean, result.contributors, 1.0)
        self._vector.set_gradient(self._mean)
        share = result.contributors / ranks if self._linear_scaling else 1.0
        with self._others_left_out(), self._terms.on(terms, share):
            self._step()
        return True

    @contextlib.contextmanager
    def _others_left_out(self) -> Iterator[None]:
        """Parameters that were added or unfrozen since have gradients of this rank alone, which must not move them."""
        others = [p for group in self._optimizer.param_groups for p in group["params"] if not self._vector.has(p)]
        gradients = [parameter.grad for parameter in others]
        for parameter in others:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(others, gradients, strict=True):
                parameter.grad = gradient


def require_fitting(optimizer: torch.optim.Optimizer, sync: RNA) -> None:
    """Raises if rounds could not be applied with this optimizer: on all ranks, since theirs are the same."""
    if sync.linear_scaling or sync.local_steps:
        require_scalable(optimizer)
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ValueError("distribute: RNA applies dense gradients, which SparseAdam does not take; use Adam")


def require_scalable(optimizer: torch.optim.Optimizer) -> None:
    """Raises if a group of parameters has no learning rate that could be scaled."""
    for number, group in enumerate(optimizer.param_groups):
        if not is_number(group.get(RATE)):
            raise ValueError(
                f"distribute: RNA scales learning rates, and expects a number 'lr' in every group of "
                f"{type(optimizer).__name__}; group {number} has {group.get(RATE)!r}. Use RNA(linear_scaling=False) "
                "without local_steps, or an optimizer with learning rates."
            )
