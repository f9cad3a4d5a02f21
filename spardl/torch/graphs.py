"""What torch.compile is to leave alone."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def outside_graphs(function: Function) -> Function:
    """The function, called as it is by what torch.compile compiles: it and all that it calls stay out of graphs."""
    return cast(Function, torch.compiler.disable(function))  # type: ignore[no-untyped-call]
