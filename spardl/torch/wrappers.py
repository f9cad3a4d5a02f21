"""Optimizers and models that wrap others: what is underneath, or what to hand in instead."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def unwrapped(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The optimizer, the one that it wraps (SAM, Lookahead, accelerate's), and so on; the last one does the steps.

    A wrapper's own ``step()`` may never be called, but the last one's always is: that is where hooks belong.
    """
    chain = [optimizer]
    while inner := [(name, one) for name, one in _optimizers_in(chain[-1]) if _belongs_to(one, chain)]:
        outer, (_, one) = type(chain[-1]).__name__, inner[0]
        if any(other is not one for _, other in inner) or _ids(one) != _ids(optimizer):
            names = " and ".join(f".{name}" for name, _ in inner)
            raise ValueError(
                f"distribute: {outer} leaves its steps to {names}, and each has some of the parameters only. Call "
                "distribute() for each optimizer that does steps."
            )
        state = vars(chain[-1]).get("state")
        if state and state is not one.state:
            raise ValueError(
                f"distribute: {outer} has state of its own already, which may differ between ranks. Call distribute() "
                f"with the {type(one).__name__} first, and build the {outer} around it after that."
            )
        chain.append(one)
    return chain


def hint_for(value: Any) -> str:
    """What to hand in instead of something that is not an optimizer but has one."""
    for name, _ in _optimizers_in(value):
        return f"; hand in its .{name}"
    return ""


def require_bare(model: torch.nn.Module) -> None:
    """Raises if the model, or a part of it, is wrapped in something that reduces gradients by itself."""
    for name, module in model.named_modules():
        where = f"the part {name!r} of the model" if name else "the model"
        if isinstance(module, DistributedDataParallel):
            raise TypeError(
                f"distribute: {where} is wrapped in DistributedDataParallel, which averages gradients by itself. Hand "
                "in the model without it (its .module was the model), or keep it and use "
                "model.register_comm_hook(None, spardl.torch.ddp_hook(sync)) in place of distribute()."
            )
        if any(base.__module__.startswith("torch.distributed.fsdp") for base in type(module).__mro__):
            raise TypeError(
                f"distribute: {where} is sharded by FSDP, which reduces gradients by itself. Hand in the model "
                "without FSDP."
            )


def _optimizers_in(value: Any) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    """Attributes that are optimizers, or lists or dicts with some in them."""
    for name, attribute in getattr(value, "__dict__", {}).items():
        if isinstance(attribute, torch.optim.Optimizer):
            yield name, attribute
        elif isinstance(attribute, list | tuple | dict):
            parts = attribute.items() if isinstance(attribute, dict) else enumerate(attribute)
            yield from ((f"{name}[{k!r}]", part) for k, part in parts if isinstance(part, torch.optim.Optimizer))


def _ids(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _belongs_to(one: torch.optim.Optimizer, chain: list[torch.optim.Optimizer]) -> bool:
    return all(one is not other for other in chain) and not _ids(one).isdisjoint(_ids(chain[-1]))
