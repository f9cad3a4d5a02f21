"""States of handles: gathered, dealt out anew to another number of ranks, checked before they are loaded."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from spardl.effects import Collective, Recv, Send
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task, shared_channel
from spardl.torch import trees

FORMAT = 1

# What is summed over ranks when it is dealt out anew. Other parts of a bucket's state were learnt for the old ranks.
_ADDITIVE = ("residual", "velocity")
_EQUAL_ON_ALL = ("kind", "names", "shapes", "strides", "dtype", "decay_velocity")
_PER_ELEMENT = (*_ADDITIVE, "decay_velocity")


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One state of all ranks' ``handle.state_dict()``, which ``load_state_dict`` takes on any number of ranks."""
    by_rank = sorted(states, key=lambda state: state["rank"])
    found = [state["rank"] for state in by_rank]
    if not by_rank or found != list(range(by_rank[0]["ranks"])):
        expected = by_rank[0]["ranks"] if by_rank else "some"
        raise ValueError(
            f"join_states: expected the states of all of {expected} ranks, once each, got those of {found}"
        )
    return {"format": FORMAT, "ranks": len(by_rank), "states": [dict(state) for state in by_rank]}


def state_for(state: Mapping[str, Any], ranks: int, rank: int) -> Mapping[str, Any]:
    """The part of ``state`` that this rank of ``ranks`` goes on from."""
    if state.get("format") != FORMAT:
        raise ValueError(f"load_state_dict: expected a state of format {FORMAT}, got {state.get('format')!r}")
    if "states" in state:
        states: Sequence[Mapping[str, Any]] = state["states"]
        return states[rank] if len(states) == ranks else reshard(states, ranks, rank)
    if (state["ranks"], state["rank"]) != (ranks, rank):
        raise ValueError(
            f"load_state_dict: this is the state of rank {state['rank']} of {state['ranks']}, and this process is rank "
            f"{rank} of {ranks}. To change the number of ranks give all ranks join_states([...]) of all files."
        )
    return state


def reshard(states: Sequence[Mapping[str, Any]], ranks: int, rank: int) -> dict[str, Any]:
    """What ``rank`` of ``ranks`` takes over: old ranks are dealt out in turn, so that sums over ranks are kept."""
    buckets = []
    for olds in zip(*(state["buckets"] for state in states), strict=True):
        bucket = {name: olds[0][name] for name in _EQUAL_ON_ALL if name in olds[0]}
        for name in _ADDITIVE:
            held = [old[name] for old in olds if name in old]  # a dense bucket has no residual where nothing is owed
            if held:
                bucket[name] = sum((old[name] for old in olds[rank::ranks] if name in old), torch.zeros_like(held[0]))
        buckets.append(bucket)
    return {"format": FORMAT, "ranks": len(states), "rank": rank, "steps": states[0]["steps"], "buckets": buckets}


def lay_out_anew(buckets: Sequence[Mapping[str, Any]], skeletons: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What ``buckets`` hold by element, put into buckets of other parameters or order of memory (``skeletons``)."""
    by_name: dict[str, dict[str, torch.Tensor]] = {}
    for bucket in buckets:
        for name, view in _views(bucket).items():
            by_name[name] = {part: view(bucket[part]) for part in _PER_ELEMENT if part in bucket}
    laid_out = []
    for skeleton in skeletons:
        bucket = dict(skeleton)
        views = _views(bucket)
        size = sum(math.prod(shape) for shape in bucket["shapes"])
        for part in {part for name in views for part in by_name[name]}:
            bucket[part] = torch.zeros(size, dtype=getattr(torch, bucket["dtype"]))
            for name, view in views.items():
                if part in by_name[name]:
                    view(bucket[part]).copy_(by_name[name][part])
        laid_out.append(bucket)
    return laid_out


def _views(bucket: Mapping[str, Any]) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """For each parameter of a bucket, how to see its part of the flat vector in its own shape."""
    views: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    start = 0
    for name, shape, strides in zip(bucket["names"], bucket["shapes"], bucket["strides"], strict=True):
        views[name] = partial(torch.as_strided, size=shape, stride=strides, storage_offset=start)
        start += math.prod(shape)
    return views


def require_fitting(state: Mapping[str, Any], parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Raises if the state was taken of other parameters than these."""
    saved = {
        name: shape
        for bucket in state["buckets"]
        for name, shape in zip(bucket["names"], bucket["shapes"], strict=True)
    }
    if not saved:
        return  # taken before the first step
    for name, parameter in parameters.items():
        if saved.get(name) != list(parameter.shape):
            raise ValueError(
                f"load_state_dict: parameter {name!r} has shape {list(parameter.shape)} here, "
                f"but {saved.get(name, 'is missing')} in the state"
            )
    extra = saved.keys() - parameters.keys()
    if extra:
        raise ValueError(f"load_state_dict: the state has a parameter {min(extra)!r} that is not trained here")


def gather(group: Group, state: Mapping[str, Any], timeout: float) -> list[Any] | None:
    """Every rank's state on rank 0, None elsewhere."""
    return Task(shared_channel(group), _gather(group, state), timeout, "gathering checkpoints").wait()


def _gather(group: Group, state: Mapping[str, Any]) -> Collective[list[Any] | None]:
    if group.me > 0:
        yield Send(0, trees.to_bytes(dict(state)), "gathering checkpoints")
        return None
    states: list[Any] = [dict(state)]
    for rank in range(1, group.size):
        states.append(trees.from_bytes((yield Recv(rank, "gathering checkpoints"))))
    return states
