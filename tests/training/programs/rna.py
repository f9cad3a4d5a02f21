"""RNA through torch: replicas agree to the bit, nothing is lost, errors reach every rank, and it ends cleanly."""

import threading
import time

import numpy as np
import torch
from mpi4py import MPI
from setting import assert_same_weights, weights
from torch import nn

import spardl.torch as spt
from spardl import NonFiniteGradient, PeerError

world = MPI.COMM_WORLD
P, me = world.size, world.rank
rng = np.random.default_rng(me)
N = 3000


class Vector(nn.Module):
    """Whose gradient is whatever it is given."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(N, dtype=torch.float64))

    def forward(self, x):
        return (self.w * x).sum()


def step(model, optimizer, x):
    time.sleep(rng.uniform(0, 0.01))
    optimizer.zero_grad()
    model(x).backward()
    optimizer.step()


def no_thread_is_left():
    assert not any(thread.name == "spardl-rna" for thread in threading.enumerate())


def law():
    """Σ gradients = P · Σ applied + Σ residuals, exactly: integers, and a number of ranks that divides them."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    deposited = np.zeros(N)
    with spt.distribute(optimizer, model, sync=spt.RNA(reduce=spt.SparDL(density=0.02)), comm=world) as handle:
        for _ in range(30):
            x = rng.integers(-9, 10, N) * 2.0**12
            deposited += x
            step(model, optimizer, torch.from_numpy(x))
    total, left = np.empty(N), np.empty(N)
    world.Allreduce(deposited, total)
    world.Allreduce(np.ascontiguousarray(handle.residual), left)
    np.testing.assert_array_equal(total, -P * model.w.detach().numpy() + left)
    assert_same_weights(model)
    assert sum(handle.metrics.staleness.values()) == 30
    no_thread_is_left()


def schedules():
    """Learning rates follow each rank's own steps, momentum and Adam remember: and yet all weights are the same."""
    for policy in (spt.PowerOfChoices(2), spt.Majority(), spt.Solo(), spt.All()):
        for make in (
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.Adam(p, lr=0.01),
        ):
            torch.manual_seed(me)
            model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4))
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
            assert handle.stats.steps == len(handle.metrics.contributors)
            no_thread_is_left()
            before = weights(model).clone()
            model(torch.randn(8, 20)).square().mean().backward()
            optimizer.step()  # alone again
            assert not torch.equal(before, weights(model))


def faults():
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=spt.RNA(), comm=world)
    started = time.monotonic()
    try:
        for number in range(10_000):
            x = torch.ones(N, dtype=torch.float64)
            if me == 1 % P and number == 5:
                x[7] = torch.nan
            step(model, optimizer, x)
        raise AssertionError("nobody noticed")
    except NonFiniteGradient as error:
        assert me == 1 % P
        assert "at index 7" in str(error)
    except PeerError as error:
        assert me != 1 % P
        assert "rank 1 ended with NonFiniteGradient" in str(error)
    assert time.monotonic() - started < 10
    del handle


for _ in range(3):
    law()
schedules()
faults()
world.Barrier()
no_thread_is_left()
print("rank done", flush=True)
