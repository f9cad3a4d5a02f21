"""What must not have changed about an optimizer since it was distributed; and an error that every handle raises."""

from collections.abc import Mapping

import torch

from spardl.errors import NonFiniteGradient


class Unchanged:
    """Remembers an optimizer's parameters; ``problem`` is asked before every step."""

    def __init__(self, optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._trained = {id(parameter) for parameter in trained.values()}
        self._known = self._count_parameters()

    def problem(self) -> Exception | None:
        """What the user has to mend first, if anything."""
        if self._count_parameters() != self._known:
            return RuntimeError(
                f"the optimizer has {self._count_parameters()} parameters, but had {self._known} when distribute() was "
                "called; after adding parameters call handle.remove() and distribute() again"
            )
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in self._trained:
                    return RuntimeError(
                        f"a parameter of shape {list(parameter.shape)} has a gradient, but was frozen or another one "
                        "when distribute() was called; after such a change call handle.remove() and distribute() again"
                    )
        return None

    def _count_parameters(self) -> int:
        return sum(len(group["params"]) for group in self._optimizer.param_groups)


def non_finite(error: NonFiniteGradient, parameter: str, call: str) -> NonFiniteGradient:
    """The error with the parameter's name; ``call`` is what takes a GradScaler."""
    return NonFiniteGradient(
        f"non-finite gradient of {parameter} on rank {error.rank}; no rank has made this step, and residuals are as "
        f"before it. With a GradScaler use {call}(..., scaler=scaler).",
        rank=error.rank,
        index=error.index,
    )
