"""Which parameters travel together: pure functions of their order, sizes and dtypes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch

# Gradients of 16 bits are accumulated in 32: residuals would lose small contributions otherwise.
ACCUMULATED_AS = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
SPARSE, DENSE, ROWS = "sparse", "dense", "rows"

Exclude: TypeAlias = Iterable[str] | Callable[[str, torch.nn.Parameter], bool]


def memory_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's order of memory, e.g. channels_last, without gaps."""
    return torch.empty_like(parameter, device="meta").stride()


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """Parameters whose gradients are reduced as one vector (or, for ``ROWS``, one parameter with sparse gradients)."""

    kind: str
    names: tuple[str, ...]
    dtype: str

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "BucketPlan":
        return cls(told["kind"], tuple(told["names"]), told["dtype"])


def plan_buckets(
    order: Iterable[str],
    parameters: Mapping[str, torch.nn.Parameter],
    kinds: Mapping[str, str],
    capacity_bytes: float,
) -> list[BucketPlan]:
    """Buckets of neighbours in ``order``, of one kind and dtype each, filled up to the capacity.

    A parameter larger than the capacity has a bucket to itself.
    """
    closed: list[BucketPlan] = []
    filling: dict[tuple[str, str], list[str]] = {}
    filled: dict[tuple[str, str], float] = {}

    def close(lane: tuple[str, str]) -> None:
        closed.append(BucketPlan(lane[0], tuple(filling.pop(lane)), lane[1]))

    for name in order:
        dtype = ACCUMULATED_AS[parameters[name].dtype]
        lane = (kinds[name], str(dtype).removeprefix("torch."))
        size = parameters[name].numel() * dtype.itemsize
        if lane in filling and (kinds[name] == ROWS or filled[lane] + size > capacity_bytes):
            close(lane)
        if lane not in filling:
            filling[lane], filled[lane] = [], 0
        filling[lane].append(name)
        filled[lane] += size
    for lane in list(filling):
        close(lane)
    return closed


def excluded_names(exclude: Exclude, parameters: Mapping[str, torch.nn.Parameter]) -> set[str]:
    """The parameters that stay dense: those whose name matches a pattern (``"*.bias"``), or that a predicate picks."""
    if callable(exclude):
        return {name for name, parameter in parameters.items() if exclude(name, parameter)}
    if isinstance(exclude, str):
        raise TypeError(
            f"distribute: expected exclude to be a list of names or a predicate, got the string {exclude!r}"
        )
    chosen: set[str] = set()
    for pattern in exclude:
        matching = {name for name in parameters if fnmatchcase(name, pattern)}
        if not matching:
            raise ValueError(
                f"distribute: exclude={pattern!r} matches no parameter of the optimizer; there are {_some(parameters)}"
            )
        chosen |= matching
    return chosen


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
