"""RNA through torch: replicas agree to the bit, nothing is lost, errors reach every rank, and it ends cleanly."""

import time

import numpy as np
import torch
from mpi.programs.checks import world
from mpi4py import MPI
from setting import P, assert_same_weights, me, raises, weights
from torch import nn
from vector_model import N, Vector, integers, no_thread_is_left, rng, step, summed

import spardl.torch as spt
from spardl import NonFiniteGradient, PeerError


def law():
    """Σ gradients = P · Σ applied + Σ residuals, exactly: integers, which all numbers of contributors divide."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    deposited = np.zeros(N)
    with spt.distribute(optimizer, model, sync=spt.RNA(reduce=spt.SparDL(density=0.02)), comm=world) as handle:
        for _ in range(30):
            x = 3 * integers()
            deposited += x
            step(model, optimizer, x)
    np.testing.assert_array_equal(summed(deposited), -P * model.w.detach().numpy() + summed(handle.residual))
    assert_same_weights(model)
    assert sum(handle.metrics.staleness.values()) == 30
    no_thread_is_left()


def schedules():
    """Learning rates follow each rank's own steps, momentum and Adam remember: and yet all weights are the same."""
    for policy in (spt.PowerOfChoices(2), spt.Majority(), spt.Solo(), spt.All()):
        for make in (
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
        ):
            torch.manual_seed(me)
            model = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, 4))
            optimizer = make(model.parameters())
            handle = spt.distribute(optimizer, model, sync=spt.RNA(policy=policy), comm=world)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            start = weights(model).clone()
            for _ in range(10):
                time.sleep(rng.uniform(0, 0.005))
                optimizer.zero_grad()
                model(torch.randn(8, 20)).square().mean().backward()
                optimizer.step()
                scheduler.step()
            handle.finish()
            assert_same_weights(model)
            assert not torch.equal(start, weights(model))
            assert_same_buffers(model)
            stats = handle.stats
            assert stats.steps + stats.skipped == len(handle.metrics.contributors)
            assert stats.skipped == handle.metrics.contributors.count(0)
            no_thread_is_left()
            before = weights(model).clone()
            model(torch.randn(8, 20)).square().mean().backward()
            optimizer.step()  # alone again
            assert not torch.equal(before, weights(model))


def faults():
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=spt.RNA(), comm=world)

    def train():
        for number in range(10_000):
            x = np.ones(N)
            if me == 1 % P and number == 5:
                x[7] = np.nan
            step(model, optimizer, x)

    started = time.monotonic()
    raises(NonFiniteGradient, [f"of 'w' on rank {1 % P} ", "at index 7"], train)
    assert time.monotonic() - started < 30
    del handle


def assert_same_buffers(model):
    assert len(set(world.allgather(b"".join(buffer.numpy().tobytes() for buffer in model.buffers())))) == 1


def settled():
    """All ranks have the same model, buffers included; and training goes on."""
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.BatchNorm1d(24), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with spt.distribute(optimizer, model, sync=spt.RNA(), comm=world) as handle:
        for _ in range(3):
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.from_numpy(rng.integers(0, 50, (6, 3)))).square().mean().backward()
                optimizer.step()
            handle.settle()
            assert_same_weights(model)
            assert_same_buffers(model)
            assert model[2].running_mean.any()


def statistics():
    """Of a rank that never contributes: the results that it is sent count, and the time that takes."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with spt.distribute(optimizer, model, sync=spt.RNA(), comm=world) as handle:
        for _ in range(0 if me == P - 1 else 5):
            step(model, optimizer, np.ones(N))
    stats = handle.stats
    assert stats.steps + stats.skipped == len(handle.metrics.contributors) >= 1  # gradients that wait share a round
    if me == P - 1:
        assert stats.bytes_received >= stats.steps * model.w.nbytes
        assert stats.rounds >= stats.steps
        assert stats.communicate_seconds > 0


def misuse():
    """A parameter more on one rank: it is told so, and the others hear of it."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=spt.RNA(), comm=world)

    def train():
        for number in range(10_000):
            if me == P - 1 and number == 5:
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
            step(model, optimizer, np.ones(N))

    if me == P - 1:
        raises(RuntimeError, ["has 2 parameters, but had 1"], train)
    else:
        raises(PeerError, [f"rank {P - 1} failed with RuntimeError: the optimizer has 2 parameters"], train)
    del handle


def checkpoints():
    """Saved after ``settle``: what is owed comes back, to this rank or, from all ranks' states, to others."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = spt.RNA(reduce=spt.SparDL(density=0.02))
    handle = spt.distribute(optimizer, model, sync=sync, comm=world)
    for _ in range(10):
        step(model, optimizer, integers())
    raises(RuntimeError, ["call settle() first"], handle.state_dict)
    handle.settle()
    owed, rounds = summed(handle.residual), handle.stats.steps
    state, gathered = handle.state_dict(), handle.gathered_state_dict()
    step(model, optimizer, integers())
    handle.finish()
    other = spt.distribute(optimizer, model, sync=sync, comm=world)
    other.load_state_dict(state)
    np.testing.assert_array_equal(summed(other.residual), owed)
    assert (other.stats.steps, other.state_dict()["steps"]) == (0, rounds)  # totals are this process's
    step(model, optimizer, integers())
    other.finish()
    if gathered is not None:
        alone = spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF)
        alone.load_state_dict(gathered)
        np.testing.assert_array_equal(alone.residual, owed)
        alone.finish()


def local_steps():
    """Nothing new has come: the weights move by this rank's gradient, until a round takes that back."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    deposited = np.zeros(N)
    sync = spt.RNA(reduce=spt.SparDL(density=0.02), local_steps=True)
    moved = 0
    with spt.distribute(optimizer, model, sync=sync, comm=world) as handle:
        for _ in range(30):
            x, rounds, before = 3 * integers(), handle.stats.steps, weights(model)
            deposited += x
            step(model, optimizer, x, 0.002)
            if handle.stats.steps == rounds:
                moved += 1
                assert torch.equal(weights(model), before - 0.5 * torch.from_numpy(x))
    assert moved > 0
    applied = -2 * P * model.w.detach().numpy()
    np.testing.assert_array_equal(summed(deposited), applied + summed(handle.residual))
    assert_same_weights(model)


for _ in range(10):  # it ends cleanly, ten times in a row
    law()
schedules()
checkpoints()
local_steps()
settled()
statistics()
faults()
misuse()
no_thread_is_left(within=5)  # they take a moment to tell the others
