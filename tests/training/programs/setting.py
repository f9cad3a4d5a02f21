"""What the programs share: a model, data that depend on rank and step, and looking at weights."""

import hashlib

import torch
from mpi.programs.checks import world
from torch import nn

P, me = world.size, world.rank
TEAMS = {4: 2, 6: 3, 3: 3}.get(P, 1)
torch.set_num_threads(1)


def small_model(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4)).to(dtype)


def batch(rank, step, dtype=torch.float32):
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(1000 * step + rank)).to(dtype)


def backward(model, inputs, scaler=None):
    loss = model(inputs).square().sum()
    (loss if scaler is None else scaler.scale(loss)).backward()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def digest(model):
    return hashlib.blake2b(weights(model).view(torch.uint8).numpy().tobytes()).hexdigest()


def assert_same_weights(model):
    assert len(set(world.allgather(digest(model)))) == 1


def raises(kind, words, action):
    """``action`` raises on this rank, with all the words in its message; returns the error."""
    try:
        action()
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return error
    raise AssertionError(f"rank {me}: no {kind.__name__}")
