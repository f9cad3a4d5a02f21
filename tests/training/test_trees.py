"""Optimizer states as bytes."""

import json

import numpy as np
import pytest
import torch

from spardl import WireError, wire
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


def message_of(skeleton, *frames):
    """A message that is whole, whatever it says."""
    text = skeleton if isinstance(skeleton, bytes) else json.dumps(skeleton).encode()
    parts = [np.frombuffer(text, np.uint8), *frames]
    return np.concatenate([np.array([len(parts)], np.int64).view(np.uint8), *wire.join(parts)])


def test_every_damaged_byte_is_told():
    message = trees.to_bytes({"a": torch.arange(3.0), "b": [1, None, "text"]})
    for place in range(len(message)):
        damaged = message.copy()
        damaged[place] ^= 1 << place % 8
        with pytest.raises(WireError):
            trees.from_bytes(damaged)
        with pytest.raises(WireError):
            trees.from_bytes(message[:place])


@pytest.mark.parametrize(
    "skeleton",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        {"a": 1, "b": 2},
        {},
        {"set": [1]},
        {"list": 5},
        {"dict": [[1, 2, 3]]},
        {"dict": [[{"list": []}, 1]]},
        {"tensor": [0, "float32"]},
        {"tensor": [1, "float32", [2]]},
        {"tensor": ["0", "float32", [2]]},
        {"tensor": [0, "nn", [2]]},
        {"tensor": [0, 5, [2]]},
        {"tensor": [0, "float32", [3]]},
        {"tensor": [0, "float32", [2**40, 2**40]]},
        {"tensor": [0, "float32", [-1, -2]]},
        {"tensor": [0, "float32", [2**62, 2**62, 0]]},
        {"tensor": [0, "float32", 2]},
        {"tensor": [0, "float32", ["2"]]},
    ],
)
def test_what_is_no_tree(skeleton):
    with pytest.raises(WireError, match="no state of tensors and numbers"):
        trees.from_bytes(message_of(skeleton, np.zeros(8, np.uint8)))


def test_a_tensor_of_another_size():
    with pytest.raises(WireError, match="7 bytes arrived, expected a tensor of shape"):
        trees.fill_from_bytes(torch.zeros(2), np.zeros(7, np.uint8))
