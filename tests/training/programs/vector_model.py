"""A model whose gradient is whatever it is given, and a step of it."""

import threading
import time

import numpy as np
import torch
from mpi.programs.checks import world
from torch import nn

N = 3000
rng = np.random.default_rng(world.rank)


class Vector(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(N, dtype=torch.float64))

    def forward(self, x):
        return (self.w * x).sum()


def integers():
    """A gradient that 12 halvings leave whole."""
    return rng.integers(-9, 10, N) * 2.0**12


def step(model, optimizer, x, seconds=0.01):
    time.sleep(rng.uniform(0, seconds))
    optimizer.zero_grad()
    model(torch.from_numpy(x)).backward()
    optimizer.step()


def summed(values, comm=world):
    total = np.empty_like(values)
    comm.Allreduce(np.ascontiguousarray(values), total)
    return total


def no_thread_is_left(within=0.0):
    deadline = time.monotonic() + within
    while any(thread.name.startswith("spardl-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
