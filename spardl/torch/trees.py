"""Nested dicts and lists with tensors in them ⇄ bytes, without pickle.

The skeleton travels as JSON, in which a tensor is its dtype and shape; the tensors' bytes follow.
"""

import json
import math
from typing import Any

import numpy as np
import torch

from spardl import wire
from spardl.effects import Bytes
from spardl.errors import WireError


def to_bytes(tree: Any) -> Bytes:
    """One message of ``tree``: dicts, lists, tuples, tensors and JSON's own types."""
    tensors: list[torch.Tensor] = []
    skeleton = np.frombuffer(json.dumps(_skeleton(tree, tensors)).encode(), np.uint8)
    frames = [skeleton, *(tensor_bytes(tensor) for tensor in tensors)]
    count = np.array([len(frames)], np.int64).view(np.uint8)
    return np.concatenate([count, *wire.join(frames)])


def from_bytes(message: Bytes) -> Any:
    """What ``to_bytes`` was given; its tensors are on the CPU. Raises WireError for other bytes."""
    count = int(message[:8].view(np.int64)[0]) if len(message) >= 8 else 0
    if count < 1:
        raise _not_a_tree(message)
    skeleton, *frames = wire.split(message[8:], count)
    try:
        return _tree(json.loads(skeleton.tobytes()), frames)
    except WireError:
        raise
    except (ValueError, TypeError, IndexError, OverflowError, RuntimeError):  # JSON, but no skeleton
        raise _not_a_tree(message) from None


def _not_a_tree(message: Bytes) -> WireError:
    return WireError(f"{len(message)} bytes arrived that are no state of tensors and numbers")


def tensor_bytes(tensor: torch.Tensor) -> Bytes:
    """The tensor's elements in order, as bytes; a view where possible."""
    flat: Bytes = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def fill_from_bytes(tensor: torch.Tensor, data: Bytes) -> None:
    """Overwrites the tensor's elements with those of an equal one's ``tensor_bytes``."""
    if len(data) != tensor.numel() * tensor.element_size():
        raise WireError(f"{len(data)} bytes arrived, expected a tensor of shape {list(tensor.shape)} in {tensor.dtype}")
    if tensor.numel() == 0:
        return
    source = torch.from_numpy(np.array(data)).view(tensor.dtype).reshape(tensor.shape)
    with torch.no_grad():
        tensor.copy_(source)


def _skeleton(tree: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return {"tensor": [len(tensors) - 1, str(tree.dtype).removeprefix("torch."), list(tree.shape)]}
    if isinstance(tree, dict):
        return {"dict": [[_skeleton(key, tensors), _skeleton(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return {"tuple" if isinstance(tree, tuple) else "list": [_skeleton(part, tensors) for part in tree]}
    if tree is None or isinstance(tree, str | int | float | bool):
        return tree
    raise TypeError(
        f"expected state of tensors, numbers, strings, lists and dicts, got a {type(tree).__name__}: {tree}"
    )


def _tree(skeleton: Any, frames: list[Bytes]) -> Any:
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return _tensor(frames, *content)
    if kind == "dict":
        return {_tree(key, frames): _tree(value, frames) for key, value in content}
    if kind not in ("list", "tuple"):
        raise ValueError(f"no kind of tree: {kind}")
    parts = [_tree(part, frames) for part in content]
    return tuple(parts) if kind == "tuple" else parts


def _tensor(frames: list[Bytes], position: int, dtype: str, shape: list[int]) -> torch.Tensor:
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or min(shape, default=0) < 0:
        raise ValueError(f"no dtype and shape: {dtype}, {shape}")
    if math.prod(shape) * kind.itemsize != len(frames[position]):  # before there is room made for it
        raise ValueError(f"not the bytes of a {dtype} of shape {shape}")
    tensor = torch.empty(shape, dtype=kind)
    fill_from_bytes(tensor, frames[position])
    return tensor
