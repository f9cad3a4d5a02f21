"""The numbers of an optimizer that a scheduler may change: a round is applied with one rank's, on all of them."""

import json
from typing import Any

import torch


def terms_of(optimizer: torch.optim.Optimizer) -> str:
    return json.dumps([_numbers(group) for group in optimizer.param_groups])


def set_terms(optimizer: torch.optim.Optimizer, terms: str) -> str:
    """Returns what was before."""
    before = terms_of(optimizer)
    for group, numbers in zip(optimizer.param_groups, json.loads(terms), strict=True):
        group.update({name: tuple(n) if isinstance(n, list) else n for name, n in numbers.items()})
    return before


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    """Numbers, and tuples of them such as Adam's betas."""
    return {
        name: value
        for name, value in group.items()
        if name != "params" and isinstance(value, int | float | tuple) and not isinstance(value, bool)
    }
