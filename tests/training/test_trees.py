"""Optimizer states as bytes."""

import pytest
import torch

from spardl.torch import trees


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def test_round_trip():
    tree = {
        0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(3, 4).t(), "empty": torch.empty(0, 5)},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "fused": None, "amsgrad": False, "params": [0, 1], "inf": 1e400}],
        "kinds": [torch.tensor([1, 2], dtype=t) for t in (torch.int64, torch.bool, torch.bfloat16, torch.float16)],
    }
    assert same(trees.from_bytes(trees.to_bytes(tree)), tree)


def test_optimizer_state():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert same(trees.from_bytes(trees.to_bytes(optimizer.state_dict())), optimizer.state_dict())


def test_what_cannot_be_told():
    with pytest.raises(TypeError, match="got a function"):
        trees.to_bytes({"hook": test_round_trip})
