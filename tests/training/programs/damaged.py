"""A state that is damaged on one rank is a ValueError on all, which names the rank, and nothing has changed."""

import numpy as np
import torch
from damaged_state import frozen
from mpi.programs.checks import gradient, world
from setting import P, assert_same_weights, backward, batch, me, raises, small_model

import spardl
import spardl.torch as spt

LAST = P - 1


def refused(holder, wrong, words, at=LAST):
    """``wrong`` is loaded on rank ``at``, which is told ``words``; the other ranks load their own state."""
    mine = holder.state_dict()
    expected = words if me == at else [f"failed on rank {at}", *words]
    raises(ValueError, expected, lambda: holder.load_state_dict(wrong if me == at else mine))
    assert frozen(holder.state_dict()) == frozen(mine)


def without(state, name):
    return {other: value for other, value in state.items() if other != name}


def train(model, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, batch(me, step))
        optimizer.step()


def check_handle():
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = spt.distribute(optimizer, model, sync=spt.SparDL(density=0.1), timeout=30)
    train(model, optimizer, 2)
    good = handle.state_dict()
    (bucket,) = good["buckets"]
    for at in (0, LAST):
        refused(handle, without(good, "steps"), ["has no 'steps'"], at)
        refused(handle, good | {"buckets": [without(bucket, "residual")]}, ["'residual'"], at)
        refused(handle, good | {"buckets": [bucket | {"residual": bucket["residual"][:-1]}]}, ["of shape"], at)
        refused(handle, good | {"buckets": [bucket | {"residual": bucket["residual"] + torch.nan}]}, ["not finite"], at)
        learnt = bucket["reducer"] | {"thresholds": None}
        refused(handle, good | {"buckets": [bucket | {"reducer": learnt}]}, ["thresholds"], at)
        refused(handle, None, ["to be a dict"], at)
    raises(
        ValueError,
        ["disagree on step: 2 on", "but 3 on"],
        lambda: handle.load_state_dict(good | {"steps": 2 + (me == LAST)}),
    )
    train(model, optimizer, 1)
    assert_same_weights(model)
    handle.remove()


def check_rna():
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = spt.distribute(optimizer, model, sync=spt.RNA(reduce=spt.SparDL(density=0.1)), timeout=30)
    train(model, optimizer, 2)
    handle.settle()
    good = handle.state_dict()
    (bucket,) = good["buckets"]
    for at in (0, LAST):
        refused(handle, without(good, "buckets"), ["has no 'buckets'"], at)
        refused(handle, good | {"buckets": [bucket | {"residual": bucket["residual"] + torch.inf}]}, ["not finite"], at)
    handle.load_state_dict(good)
    train(model, optimizer, 1)
    handle.finish()


def check_allreduce():
    """Ok-Topk goes by what all ranks remember alike, so that is compared."""
    allreduce = spardl.SparseAllreduce(world, 500, k=20, algorithm="oktopk", timeout=30)
    for step in range(3):
        allreduce.reduce(gradient(me, step, 500))
    good = allreduce.state_dict()
    for at in (0, LAST):
        refused(allreduce, without(good, "residual"), ["has no 'residual'"], at)
        refused(allreduce, good | {"residual": np.full(500, np.nan, np.float32)}, ["not finite"], at)
    age, *thresholds = good["tuning"]
    other = good | {"tuning": (age + (me == LAST), *thresholds)}
    raises(ValueError, [f"disagree on age: {age} on", f"{age + 1} on rank"], lambda: allreduce.load_state_dict(other))
    assert frozen(allreduce.state_dict()) == frozen(good)
    allreduce.load_state_dict(good)
    allreduce.reduce(gradient(me, 3, 500))


check_allreduce()
check_handle()
check_rna()
