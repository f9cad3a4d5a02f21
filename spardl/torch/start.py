"""Ranks start from the same model: compared first, then rank 0's values for all."""

from collections.abc import Iterable
from typing import Any

import torch

from spardl import revision
from spardl.agreement import by_value, gather_json, require_same_code
from spardl.collectives.broadcast import broadcast
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task, shared_channel
from spardl.torch import trees


def require_same_model(
    group: Group, model: torch.nn.Module, optimizer: torch.optim.Optimizer, problem: Exception | None, timeout: float
) -> None:
    """Raises on every rank if one has a ``problem``, or if models or optimizers differ; shows the first difference."""
    told: dict[str, Any] = {"code": revision.describe(), "problem": None if problem is None else f"{problem}"}
    if problem is None:
        told["parts"] = _describe(model, optimizer)
    gathered = gather_json(group, told, timeout, "distribute")
    require_same_code([other.get("code") for other in gathered], "distribute", group.ranks)
    if problem is not None:
        raise problem
    for rank, other in zip(group.ranks, gathered, strict=True):
        if other["problem"] is not None:
            raise ValueError(f"distribute failed on rank {rank}: {other['problem']}")
    everyone: list[list[str]] = [other["parts"] for other in gathered]
    for position in range(max(map(len, everyone))):
        there = [parts[position] if position < len(parts) else "nothing" for parts in everyone]
        if len(set(there)) > 1:
            raise ValueError(
                f"distribute: the ranks' models or optimizers differ, first in part {position}: "
                f"{by_value(there, group.ranks)}. Build the same model and optimizer on every rank."
            )


def _describe(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    parts = [
        f"parameter {name} {_shape(p)}{'' if p.requires_grad else ' frozen'}" for name, p in model.named_parameters()
    ]
    parts += [f"buffer {name} {_shape(buffer)}" for name, buffer in model.named_buffers()]
    names = {id(p): name for name, p in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        of = " ".join(names.get(id(p), "?") for p in group["params"])
        parts.append(f"{type(optimizer).__name__} group {number} of {of}")
    return parts


def _shape(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def broadcast_tensors(group: Group, tensors: Iterable[torch.Tensor], timeout: float) -> None:
    """Overwrites the tensors with rank 0's."""
    if group.size == 1:
        return
    channel = shared_channel(group)
    for tensor in tensors:
        payload = trees.tensor_bytes(tensor) if group.me == 0 else None
        data = Task(channel, broadcast(group.size, group.me, payload), timeout, "broadcasting rank 0's model").wait()
        if group.me != 0:
            trees.fill_from_bytes(tensor, data)


def broadcast_optimizer(group: Group, optimizer: torch.optim.Optimizer, timeout: float) -> None:
    """Gives all ranks rank 0's optimizer state and options."""
    if group.size == 1:
        return
    problem: Exception | None = None
    payload = None
    if group.me == 0:
        try:
            payload = trees.to_bytes(optimizer.state_dict())
        except TypeError as error:
            problem = TypeError(f"distribute: cannot send this optimizer's state to the other ranks: {error}")
    task = Task(
        shared_channel(group), broadcast(group.size, group.me, payload), timeout, "broadcasting rank 0's optimizer"
    )
    if problem is not None:
        task.abort(problem)
    data = task.wait()
    if group.me != 0:
        load_in_place(optimizer, trees.from_bytes(data))


@torch.no_grad()
def load_in_place(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """``optimizer.load_state_dict``, but what others may hold stays the same object.

    That is the dicts of options and state, which an optimizer around this one may share; and tensors among the options,
    such as a learning rate.
    """
    groups, states = optimizer.param_groups, optimizer.state
    options = [dict(group) for group in groups]
    optimizer.load_state_dict(state)
    for group, own in zip(optimizer.param_groups, options, strict=True):
        for name, value in group.items():
            kept = own.get(name)
            if isinstance(kept, torch.Tensor) and isinstance(value, torch.Tensor) and kept.shape == value.shape:
                group[name] = kept.copy_(value)
    old: list[dict[Any, Any]] = [*groups, states]
    new: list[dict[Any, Any]] = [*optimizer.param_groups, optimizer.state]
    for kept_dict, loaded in zip(old, new, strict=True):
        contents = dict(loaded)
        kept_dict.clear()
        kept_dict.update(contents)
    optimizer.param_groups, optimizer.state = groups, states
