"""Handles that are in use: what one of them has may not be distributed again."""

import weakref
from collections.abc import Mapping
from typing import Protocol

import torch


class Distributed(Protocol):
    def is_for(self, optimizer: torch.optim.Optimizer) -> bool: ...

    def has(self, parameter: torch.nn.Parameter) -> bool: ...


live_handles: "weakref.WeakSet[Distributed]" = weakref.WeakSet()


def require_not_distributed(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    for handle in live_handles:
        if handle.is_for(optimizer):
            raise ValueError("distribute: this optimizer is distributed already; call remove() on its handle first")
        shared = [name for name, parameter in parameters.items() if handle.has(parameter)]
        if shared:
            raise ValueError(
                f"distribute: parameter {shared[0]!r} is distributed already, with another optimizer; "
                "call remove() on its handle first"
            )
