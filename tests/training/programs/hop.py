"""Hop and gossip through torch: models are blended and not lost, errors reach every rank, and they end cleanly."""

import time

import numpy as np
import torch
from mpi.programs.checks import world
from setting import P, assert_same_weights, backward, batch, me, raises, small_model, weights
from vector_model import N, Vector, no_thread_is_left, rng, step, summed

import spardl.torch as spt
from spardl import NonFiniteGradient

GRAPHS = ["ring", "complete", "exponential", "one-peer-exponential"] + ["ring-based"] * (P % 2 == 0)


def law(sync):
    """Σ of all models = Σ of all moves."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    moved = np.zeros(N)
    with spt.distribute(optimizer, model, sync=sync, comm=world) as handle:
        for _ in range(8):
            x = rng.integers(-9, 10, N) * 6.0**8
            moved -= x
            step(model, optimizer, x)
    np.testing.assert_allclose(P * model.w.detach().numpy(), summed(moved), rtol=1e-12, atol=1e-2)
    assert_same_weights(model)
    assert handle.metrics.iterations == handle.iteration == 8
    no_thread_is_left()
    return handle


def laws():
    for graph in GRAPHS:
        for order in ("serial", "parallel"):
            law(spt.Hop(graph, order=order))
    for _ in range(3):
        law(spt.Gossip())
    law(spt.Gossip("ring"))


def settings():
    """Whatever the setting, all ranks come to the end, and have the same model."""
    syncs = [spt.Hop("complete", staleness=2), spt.Hop("complete", staleness=2, reuse=True, skip=(2, 4))]
    if P > 3:
        syncs += [spt.Hop("complete", backup=1), spt.Hop("complete", backup=1, skip=(2, 5), max_gap=3)]
    for sync in syncs:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        with spt.distribute(optimizer, model, sync=sync, comm=world) as handle:
            while handle.iteration < 20:
                time.sleep(rng.uniform(0, 0.02 if me == 0 else 0.002))
                optimizer.zero_grad()
                backward(model, batch(me, handle.iteration))
                optimizer.step()
        assert_same_weights(model)
        buffers = b"".join(buffer.numpy().tobytes() for buffer in model.buffers())
        assert len(set(world.allgather(buffers))) == 1
        assert handle.metrics.largest_gap <= sync.max_gap * P


def checkpoints():
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    handle = spt.distribute(optimizer, model, sync=spt.Hop("ring"), comm=world)

    def train(steps):
        for number in range(steps):
            optimizer.zero_grad()
            backward(model, batch(me, number))
            optimizer.step()

    train(5)
    state, saved = handle.state_dict(), weights(model).clone()
    train(2)
    handle.settle()
    assert_same_weights(model)
    handle.load_state_dict(state)
    assert handle.iteration == 5
    assert torch.equal(weights(model), saved)
    train(3)
    assert handle.iteration == 8
    handle.finish()
    assert_same_weights(model)


def faults(sync):
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=sync, comm=world)

    def train_on():
        for number in range(10_000):
            x = np.ones(N)
            if me == 1 % P and number == 5:
                x[7] = np.nan
            step(model, optimizer, x)

    raises(NonFiniteGradient, [f"of 'w' on rank {1 % P} ", "at index 7"], train_on)
    del handle


def refused():
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for sync, words in (
        (spt.Hop("ring", skip=(2, 4)), "expected skip to be None without backup or staleness"),
        (spt.Hop("ring", backup=5), "expected backup to be at most"),
        (spt.Hop("complete", backup=1, max_gap=None), "expected"),
        (spt.Hop("rings"), "rings"),
        (spt.Gossip("rings"), "rings"),
    ):
        raises(ValueError, [words], lambda sync=sync: spt.distribute(optimizer, model, sync=sync, comm=world))


laws()
settings()
checkpoints()
if P > 1:
    refused()
faults(spt.Hop("ring"))
faults(spt.Gossip())
no_thread_is_left(within=5)
