"""The one line that matters."""

from collections.abc import Mapping
from functools import partial
from typing import Any, overload

import torch

from spardl import kernels
from spardl.runtime.group import CommLike, resolve
from spardl.runtime.inspector import warning_time
from spardl.runtime.limit import time_limit
from spardl.torch.handle import Handle
from spardl.torch.layout import ACCUMULATED_AS, Exclude, excluded_names
from spardl.torch.live import require_not_distributed
from spardl.torch.start import broadcast_optimizer, broadcast_tensors, require_same_model
from spardl.torch.sync import RNA, Dense, Gossip, Hop, PartialReduce, SparDL, Sync, System, require_fitting
from spardl.torch.systems import SYSTEMS
from spardl.torch.systems.handle import SystemHandle
from spardl.torch.systems.hop import GraphHandle
from spardl.torch.systems.preduce import PartialReduceHandle
from spardl.torch.systems.rna import RnaHandle
from spardl.torch.wrappers import hint_for, require_bare, unwrapped


@overload
def distribute(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    *,
    sync: RNA,
    comm: CommLike | None = None,
    timeout: float | None = None,
    verify_every: int | None = 100,
) -> RnaHandle: ...


@overload
def distribute(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    *,
    sync: PartialReduce,
    comm: CommLike | None = None,
    timeout: float | None = None,
    verify_every: int | None = 100,
) -> PartialReduceHandle: ...


@overload
def distribute(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    *,
    sync: Hop | Gossip,
    comm: CommLike | None = None,
    timeout: float | None = None,
    verify_every: int | None = 100,
) -> GraphHandle: ...


@overload
def distribute(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    *,
    sync: Sync,
    comm: CommLike | None = None,
    overlap: bool = True,
    exclude: Exclude = (),
    bucket_mb: float = 25.0,
    scaler: torch.amp.GradScaler | None = None,
    timeout: float | None = None,
    warn_after: float | None = None,
    verify_every: int | None = 100,
) -> Handle: ...


def distribute(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    *,
    sync: Sync | System,
    comm: CommLike | None = None,
    overlap: bool = True,
    exclude: Exclude = (),
    bucket_mb: float = 25.0,
    scaler: torch.amp.GradScaler | None = None,
    timeout: float | None = None,
    warn_after: float | None = None,
    verify_every: int | None = 100,
) -> Handle | SystemHandle:
    """From now on ``optimizer.step()`` uses the mean of all ranks' gradients. All ranks call this together.

    The optimizer stays the caller's own object: learning rate schedulers, GradScaler and ``state_dict`` work on it as
    before. All ranks start from rank 0's parameters, buffers and optimizer state.

    Parameters
    ----------
    optimizer, model: any torch optimizer, over parameters of this model (not necessarily all of them). Of one that
        wraps another (SAM, accelerate's) the wrapped one is taken: it is the one that does the steps.
    sync: ``SparDL(density=…)`` or ``Dense()``; or ``RNA(…)``, ``PartialReduce(…)``, ``Hop(…)`` or ``Gossip(…)``, which
        do not wait for everyone, and take none of the options below but ``comm``, ``timeout`` and ``verify_every``.
    comm: an mpi4py communicator, or ``(communicator, ranks)``; all processes by default.
    overlap: send each bucket as soon as its gradients are there, while backward goes on.
    exclude: what is sent whole: names or patterns (``["*.bias"]``), or a predicate of name and parameter
        (``lambda name, p: p.ndim < 2``: biases and norm layers).
    bucket_mb: parameters are sent together up to this many megabytes.
    scaler: the GradScaler, if there is one. A non-finite gradient on one rank then makes all ranks skip the step;
        without a scaler it raises ``NonFiniteGradient`` on all.
    timeout: seconds to wait for another rank; ``SPARDL_TIMEOUT`` or 300 by default.
    warn_after: seconds of waiting after which rank 0 prints who is missing, 0 for never; ``SPARDL_STALL_WARNING`` or 30
        by default.
    verify_every: ranks compare the weights that are trained every so many steps, and all raise ``ReplicasDiffer`` if
        they differ in a bit; 0 or None for never. Costs a pass over the weights and log₂ P messages with 8 bytes each
        (weights on a GPU are copied to the host for it, one parameter at a time). Systems that do not wait for
        everyone, unless 0: in ``settle`` and ``finish``, where weights must be equal.
    """
    if comm is None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    seconds = time_limit(timeout)
    group = resolve(comm, seconds)
    problem: Exception | None = None
    parameters: Mapping[str, torch.nn.Parameter] = {}
    dense_names: set[str] = set()
    optimizers = [optimizer]
    try:
        _check_types(optimizer, model, sync, scaler, bucket_mb, verify_every)
        require_bare(model)
        optimizers = unwrapped(optimizer)
        optimizer = optimizers[-1]
        parameters = _checked_parameters(optimizer, model, sync)
        dense_names = excluded_names(exclude, parameters)
        warning_time(warn_after)
        if type(sync) in SYSTEMS:
            _require_no_more(type(sync).__name__, scaler, dense_names, warn_after)
        require_fitting(sync, group.size)
    except (ValueError, TypeError) as error:
        problem = error
    require_same_model(group, model, optimizer, problem, seconds)
    broadcast_tensors(group, [*model.parameters(), *model.buffers()], seconds)
    broadcast_optimizer(group, optimizer, seconds)
    if type(sync) in SYSTEMS:
        handle, system = SYSTEMS[type(sync)]
        make = partial(system, sync)
        return handle(
            optimizer, model, parameters, make=make, group=group, timeout=seconds, verify_every=verify_every or 0
        )
    assert isinstance(sync, SparDL | Dense)
    return Handle(
        optimizers,
        model,
        parameters,
        sync=sync,
        comm=comm,
        group=group,
        dense_names=dense_names,
        overlap=overlap,
        bucket_bytes=bucket_mb * 1e6,
        scaler=scaler,
        timeout=seconds,
        warn_after=warn_after,
        verify_every=verify_every or 0,
    )


def _check_types(optimizer: Any, model: Any, sync: Any, scaler: Any, bucket_mb: Any, verify_every: Any) -> None:
    for name, value, kind in (
        ("optimizer", optimizer, torch.optim.Optimizer),
        ("model", model, torch.nn.Module),
        ("sync", sync, Sync | System),
        ("scaler", scaler, torch.amp.GradScaler | None),
    ):
        if not isinstance(value, kind):
            expected = getattr(kind, "__name__", str(kind))
            hint = hint_for(value) if name == "optimizer" else ""
            raise TypeError(f"distribute: expected {name} to be a {expected}, got {type(value).__name__}{hint}")
    if not bucket_mb > 0:
        raise ValueError(f"distribute: expected bucket_mb above 0, got {bucket_mb}")
    number = isinstance(verify_every, int) and not isinstance(verify_every, bool) and verify_every >= 0
    if verify_every is not None and not number:
        raise ValueError(
            f"distribute: expected verify_every to be a number of steps, or 0 for never, got {verify_every!r}"
        )


def _require_no_more(name: str, scaler: Any, dense_names: set[str], warn_after: float | None) -> None:
    """Options that systems which do not wait for everyone have no use for."""
    if scaler is not None or dense_names:
        raise ValueError(f"distribute: {name} treats all parameters alike, and knows no GradScaler and no exclude")
    if warn_after is not None:
        raise ValueError(f"distribute: {name} goes on without a rank that is late, and warns of none: no warn_after")


def _checked_parameters(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, sync: Sync | System
) -> dict[str, torch.nn.Parameter]:
    """The optimizer's parameters that are trained, by their names in the model, in the model's order."""
    optimized = {id(p): (number, p) for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
    named = {name: p for name, p in model.named_parameters() if id(p) in optimized}
    if not optimized:
        raise ValueError("distribute: the optimizer has no parameters")
    known = {id(p) for p in named.values()}
    strangers = [optimized[key] for key in optimized if key not in known]
    if strangers:
        number, parameter = strangers[0]
        raise ValueError(
            f"distribute: the optimizer's group {number} has a parameter of shape {list(parameter.shape)} that is not "
            "in the model. Was the model replaced or moved after the optimizer was built?"
        )
    trained = {name: p for name, p in named.items() if p.requires_grad}
    if not trained:
        raise ValueError("distribute: none of the optimizer's parameters requires a gradient")
    for name, parameter in trained.items():
        if parameter.dtype not in ACCUMULATED_AS:
            raise TypeError(
                f"distribute: parameter {name!r} has dtype {parameter.dtype}; supported are "
                f"{', '.join(map(str, ACCUMULATED_AS))}"
            )
    require_not_distributed(optimizer, trained)
    _require_one_gpu(sync, trained)
    if isinstance(sync, SparDL) and sync.momentum > 0:
        _require_plain_sgd(optimizer)
    return trained


def _require_one_gpu(sync: Sync | System, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """If kernels for a GPU were asked for by name: with ``"auto"``, what cannot go there goes through the host."""
    if not isinstance(sync, SparDL) or kernels.resolve(sync.backend) != kernels.CUDA:
        return
    if sync.momentum > 0:
        raise ValueError("distribute: momentum correction runs on the host, got backend='cuda'; use backend='auto'")
    devices = sorted({str(parameter.device) for parameter in parameters.values()})
    if len(devices) > 1:
        raise ValueError(
            f"distribute: backend='cuda' needs all parameters on one device, got them on {' and '.join(devices)}; "
            "use backend='auto', which goes through the host where it has to"
        )


def _require_plain_sgd(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if group.get("momentum", 0) != 0 or "betas" in group:
            raise ValueError(
                f"distribute: SparDL(momentum=…) applies momentum before sending, so the optimizer must have none; got "
                f"{type(optimizer).__name__} with momentum. Use SGD without, or leave momentum to the optimizer."
            )
