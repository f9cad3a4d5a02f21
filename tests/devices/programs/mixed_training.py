"""Trains on ranks of which some have a (simulated) GPU and some none; all must end with the weights of CPUs alone."""

import numpy as np
import torch
from devices.simulated import scheduler
from mpi4py import MPI

import spardl.torch as spt

scheduler.install()
comm = MPI.COMM_WORLD


def train(backend):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sync = spt.SparDL(density=0.2, backend=backend)
    handle = spt.distribute(optimizer, model, sync=sync, exclude=["2.bias"], timeout=60)
    torch.manual_seed(comm.rank)
    for step in range(4):
        if step == 3:
            state = handle.state_dict()
            handle.load_state_dict(state)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        model(torch.randn(8, 5)).square().mean().backward()
        optimizer.step()
    residuals = {name: owed.numpy().tobytes() for name, owed in handle.residuals.items()}
    handle.remove()
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()]).tobytes(), residuals


mixed = train("cuda" if comm.rank % 2 == 0 else "native")
assert len(set(comm.allgather(mixed[0]))) == 1, "ranks differ"
assert mixed == train("native"), "a GPU changed bits"

try:
    train("cuda" if comm.rank == 0 else "fortran")
except ValueError as error:
    assert "fortran" in str(error), error
else:
    raise AssertionError("a wrong backend was accepted")
print("rank done")
