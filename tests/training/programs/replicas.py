"""Replicas that differ are noticed, on all ranks; what looks like it and is not, is left alone."""

import time

import numpy as np
import torch
from mpi.programs.checks import world
from setting import TEAMS, P, assert_same_weights, backward, batch, me, raises, small_model, weights
from torch import nn
from vector_model import N, Vector, integers, step

import spardl.torch as spt
from spardl import PeerError, ReplicasDiffer

LAST = P - 1
ODD = (LAST,) if P > 2 else (0, 1)  # of two nobody can say which is right
SYNCS = (spt.SparDL(density=0.05, teams=TEAMS), spt.Dense())


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train(model, optimizer, steps, start=0):
    for number in range(start, start + steps):
        optimizer.zero_grad()
        backward(model, batch(me, number))
        optimizer.step()


def flip_a_bit(tensor, rank=LAST):
    """Of one weight, on one rank; a bit that no rounding of later steps hides."""
    if me == rank:
        with torch.no_grad():
            tensor.view(-1)[-1:].view(torch.int32).bitwise_xor_(1 << 20)


def noticed_in_the_step(sync, rank):
    model = small_model(seed=me)
    model[3].bias.requires_grad_(False)
    optimizer = sgd(model)
    handle = spt.distribute(optimizer, model, sync=sync, comm=world, timeout=20, verify_every=3)
    train(model, optimizer, 6)
    assert_same_weights(model)
    flip_a_bit(model[3].weight, rank)
    train(model, optimizer, 2, start=6)
    before = weights(model)
    words = ["first in parameter '3.weight'", "verify_every=0"]
    error = raises(ReplicasDiffer, words, lambda: train(model, optimizer, 1, start=8))
    assert error.parameter == "3.weight"
    assert error.ranks == ((rank,) if P > 2 else (0, 1))
    assert torch.equal(weights(model), before)
    again = raises(ReplicasDiffer, [], optimizer.step)  # until it is mended
    assert (again.ranks, str(again)) == (error.ranks, str(error))
    handle.remove()
    handle = spt.distribute(optimizer, model, sync=sync, comm=world, timeout=20, verify_every=1)
    train(model, optimizer, 3, start=9)
    assert_same_weights(model)
    handle.remove()


def noticed_on_demand():
    model = small_model()
    model[3].bias.requires_grad_(False)
    optimizer = sgd(model)
    handle = spt.distribute(optimizer, model, sync=SYNCS[0], comm=world, timeout=20, verify_every=0)
    train(model, optimizer, 2)
    with torch.no_grad():
        model[3].bias[0] = torch.nan  # the same on all ranks
        model[1].running_mean[0] = me  # each rank's own, as ever
    handle.verify()
    with torch.no_grad():
        model[3].bias[0] = 0.0
    flip_a_bit(model[0].weight)
    train(model, optimizer, 2)
    assert raises(ReplicasDiffer, ["'0.weight'"], handle.verify).ranks == ODD
    handle.remove()
    handle = spt.distribute(optimizer, model, sync=SYNCS[0], comm=world, timeout=20)
    flip_a_bit(model[3].bias)  # frozen
    assert raises(ReplicasDiffer, ["'3.bias'"], handle.verify).parameter == "3.bias"
    handle.remove()


def weights_that_differ_for_a_while():
    """As SAM has it: gradients of weights that each rank has moved by itself, which are back before the step."""
    model = small_model()
    optimizer = sgd(model)
    handle = spt.distribute(optimizer, model, sync=SYNCS[0], comm=world, timeout=20, verify_every=1)
    for number in range(3):
        with handle.no_sync():
            backward(model, batch(me, number))
        own = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=0.05)
        optimizer.zero_grad()
        backward(model, batch(me, number))
        handle.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for p, value in zip(model.parameters(), own, strict=True):
                p.copy_(value)
        optimizer.step()
        optimizer.zero_grad()
    assert_same_weights(model)
    handle.remove()


def disagreement():
    model = small_model()
    words = ["disagree on verify_every", f"on rank {LAST}"]
    every = 7 if me == LAST else 100
    for sync in (*SYNCS, spt.RNA()):
        call = {"sync": sync, "comm": world, "timeout": 20, "verify_every": every}
        raises(ValueError, words, lambda call=call: spt.distribute(sgd(model), model, **call))


def rna():
    """Noticed where ranks meet. The handle is over then, and the next one starts from rank 0's weights."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for meet in ("settle", "finish", "verify"):
        every = 0 if meet == "verify" else 100
        sync = spt.RNA(local_steps=True)
        handle = spt.distribute(optimizer, model, sync=sync, comm=world, timeout=20, verify_every=every)
        for number in range(3):
            step(model, optimizer, integers())
            if number == 1:
                handle.verify()
        handle.settle()
        flip_a_bit(model.w)
        error = raises(ReplicasDiffer, ["first in parameter 'w'"], getattr(handle, meet))
        assert (error.ranks, error.parameter) == (ODD, "w")
        handle.remove()
        before = weights(model)
        step(model, optimizer, np.ones(N))  # alone again
        assert torch.equal(weights(model), before - 1)


def never_stepped(sync, kind):
    """The last rank lets another optimizer do the steps: it is told so, and the others hear of it."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    options = {} if isinstance(sync, spt.RNA) else {"overlap": False}
    handle = spt.distribute(optimizer, model, sync=sync, comm=world, timeout=90, **options)
    another = torch.optim.SGD(model.parameters(), lr=1.0)

    def steps():
        for _ in range(10_000):
            step(model, another if me == LAST else optimizer, integers())

    began = time.monotonic()
    words = "came 9 times anew, but step() of the distributed optimizer never"
    raises(RuntimeError if me == LAST else kind, [words], steps)
    assert time.monotonic() - began < 60  # it was not the time limit
    del handle


for number, sync in enumerate(SYNCS):
    noticed_in_the_step(sync, LAST if number == 0 else 0)
noticed_on_demand()
weights_that_differ_for_a_while()
disagreement()
rna()
never_stepped(spt.SparDL(density=0.1), Exception)
never_stepped(spt.RNA(), PeerError)
