"""States of handles: gathered, dealt out anew to another number of ranks, checked before they are loaded."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from spardl import saved
from spardl.effects import Collective, Recv, Send
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task, shared_channel
from spardl.torch import trees
from spardl.torch.layout import DENSE, ROWS, SPARSE

FORMAT = 1

# What is summed over ranks when it is dealt out anew. Other parts of a bucket's state were learnt for the old ranks.
_ADDITIVE = ("residual", "velocity")
_LAYOUT = ("kind", "names", "shapes", "strides", "dtype")
_EQUAL_ON_ALL = (*_LAYOUT, "decay_velocity")
_KINDS = (SPARSE, DENSE, ROWS, "rna")
_PER_ELEMENT = (*_ADDITIVE, "decay_velocity")


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One state of all ranks' ``handle.state_dict()``, which ``load_state_dict`` takes on any number of ranks."""
    for state in states:
        _require_one_rank(state)
    by_rank = sorted(states, key=lambda state: int(state["rank"]))
    found = [state["rank"] for state in by_rank]
    if not by_rank or found != list(range(by_rank[0]["ranks"])) or len({state["ranks"] for state in by_rank}) > 1:
        expected = by_rank[0]["ranks"] if by_rank else "some"
        raise ValueError(
            f"join_states: expected the states of all of {expected} ranks, once each, got those of {found}"
        )
    return {"format": FORMAT, "ranks": len(by_rank), "states": [dict(state) for state in by_rank]}


def state_for(state: Mapping[str, Any], ranks: int, rank: int) -> Mapping[str, Any]:
    """The part of ``state`` that this rank of ``ranks`` goes on from. Raises ValueError if it is not sound."""
    format = saved.mapping(state, "the state").get("format")
    if format != FORMAT:
        raise ValueError(f"load_state_dict: expected a state of format {FORMAT}, got {format!r}")
    if "states" in state:
        saved.nothing_but(["format", "ranks", "states"], state, "the state")
        states = saved.sequence(state["states"], "states", saved.integer(saved.part(state, "ranks"), "ranks", 1))
        for number, one in enumerate(states):
            _require_one_rank(one)
            if (one["ranks"], one["rank"]) != (len(states), number):
                raise saved.unfit("states", f"of ranks 0 to {len(states) - 1} in order", [s["rank"] for s in states])
        mine = states[rank] if len(states) == ranks else reshard(states, ranks, rank)
        _require_finite(mine)
        return mine
    _require_one_rank(state)
    _require_finite(state)
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
        for part in {part for name in views for part in by_name.get(name, {})}:
            bucket[part] = torch.zeros(size, dtype=getattr(torch, bucket["dtype"]))
            for name, view in views.items():
                if part in by_name.get(name, {}):
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
    known = {
        name: shape
        for bucket in state["buckets"]
        for name, shape in zip(bucket["names"], bucket["shapes"], strict=True)
    }
    if not known:
        return  # taken before the first step
    for name, parameter in parameters.items():
        if known.get(name) != list(parameter.shape):
            raise ValueError(
                f"load_state_dict: parameter {name!r} has shape {list(parameter.shape)} here, "
                f"but {known.get(name, 'is missing')} in the state"
            )
    extra = known.keys() - parameters.keys()
    if extra:
        raise ValueError(f"load_state_dict: the state has a parameter {min(extra)!r} that is not trained here")


def sealed(bucket: dict[str, Any]) -> dict[str, Any]:
    """A bucket's state with a list of what it holds, so that a part that got lost is missed."""
    return bucket | {"parts": _parts_of(bucket)}


def _parts_of(bucket: Mapping[str, Any]) -> list[str]:
    return sorted({*_PER_ELEMENT, "reducer"} & bucket.keys())


# -- what states have to be like ---------------------------------------------------------------------------------------


def _require_one_rank(state: Any) -> None:
    """Raises unless this looks like the ``state_dict()`` of one rank. Values are not looked at."""
    if saved.part(state, "format") != FORMAT:
        raise saved.unfit("a state", f"of format {FORMAT}", state["format"])
    ranks = saved.integer(saved.part(state, "ranks"), "ranks", 1)
    saved.integer(saved.part(state, "rank"), "rank", 0, ranks - 1)
    steps = saved.integer(saved.part(state, "steps"), "steps", 0)
    buckets = saved.sequence(saved.part(state, "buckets"), "buckets")
    saved.nothing_but(["format", "ranks", "rank", "steps", "buckets"], state, "the state")
    if steps and not buckets:
        raise ValueError(f"load_state_dict: the state is of step {steps}, but has no buckets")
    names: list[str] = []
    for bucket in buckets:
        _require_bucket(bucket)
        names += bucket["names"]
    if len(set(names)) < len(names):
        raise ValueError("load_state_dict: a parameter is in the state twice")


def _require_bucket(bucket: Any) -> None:
    names = saved.sequence(saved.part(bucket, "names"), "names")
    if (kind := saved.part(bucket, "kind")) not in _KINDS:
        raise saved.unfit("the kind of a bucket", f"in {_KINDS}", kind)
    if not all(isinstance(name, str) for name in names):
        raise saved.unfit("names", "to be strings", names)
    if (dtype := saved.part(bucket, "dtype")) not in ("float32", "float64"):
        raise saved.unfit("dtype", "float32 or float64", dtype)
    shapes = saved.sequence(saved.part(bucket, "shapes"), "shapes", len(names))
    strides = saved.sequence(saved.part(bucket, "strides"), "strides", len(names))
    for shape, steps in zip(shapes, strides, strict=True):
        _require_layout(shape, steps)
    if (parts := saved.part(bucket, "parts")) != _parts_of(bucket):
        raise saved.unfit(f"a bucket of {names[:1]} with", f"{parts}", _parts_of(bucket))
    saved.nothing_but([*_LAYOUT, "parts", *parts], bucket, f"a bucket of {names[:1]}")
    size = sum(math.prod(shape) for shape in shapes)
    for name in set(_PER_ELEMENT) & bucket.keys():
        vector = bucket[name]
        if not isinstance(vector, torch.Tensor) or vector.layout != torch.strided:
            raise saved.unfit(name, "to be a tensor", vector)
        if (vector.dtype, tuple(vector.shape)) != (getattr(torch, dtype), (size,)):
            raise saved.unfit(name, f"of shape [{size}] and {dtype}", (list(vector.shape), vector.dtype))
    if "reducer" in bucket:
        saved.mapping(bucket["reducer"], "the state of a reducer")


def _require_layout(shape: Any, strides: Any) -> None:
    """Raises unless elements lie one after the other in memory, in whatever order of dimensions."""
    for length in saved.sequence(shape, "a shape"):
        saved.integer(length, "a length", 0)
    for stride in saved.sequence(strides, "strides", len(shape)):
        saved.integer(stride, "a stride", 0)
    if not isinstance(shape, list) or not isinstance(strides, list):
        raise saved.unfit("shape and strides", "to be lists", (shape, strides))
    expected = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length > 1 and stride != expected and math.prod(shape) > 0:
            raise saved.unfit(f"strides of shape {shape}", "without gaps", strides)
        expected *= length


def _require_finite(state: Mapping[str, Any]) -> None:
    for bucket in state["buckets"]:
        for name in set(_PER_ELEMENT) & bucket.keys():
            saved.finite(bucket[name].numpy(), f"the {name} of {', '.join(bucket['names'][:3])}")


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
