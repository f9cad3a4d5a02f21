"""What the tests of the wrapper on one rank have in common: a small model, and its batches."""

import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt


def small_model(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1} | options)


def distribute(optimizer, model, sync=None, **options):
    return spt.distribute(optimizer, model, sync=sync or spt.SparDL(density=0.1), comm=MPI.COMM_SELF, **options)


def batches(count, seed=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5, 8, generator=generator).to(dtype) for _ in range(count)]


def backward(model, inputs):
    model(inputs).square().sum().backward()


def train(model, optimizer, steps=5, set_to_none=True, start=0):
    for inputs in batches(start + steps)[start:]:
        optimizer.zero_grad(set_to_none=set_to_none)
        backward(model, inputs)
        optimizer.step()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def state_bytes(handle):
    return b"".join(bucket["residual"].numpy().tobytes() for bucket in handle.state_dict()["buckets"])
