"""Trains on ranks of which some have a (simulated) GPU and some none; all must end with the weights of CPUs alone."""

import os

import numpy as np
import torch
from devices.simulated import scheduler
from mpi4py import MPI

import spardl.torch as spt
from spardl.kernels.cuda import arrays
from spardl.kernels.cuda.messages import DirectMessages

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


class Counted(DirectMessages):
    sealed = 0

    def seal(self, parts):
        Counted.sealed += 1
        return super().seal(parts)


arrays.DirectMessages = Counted
expected = train("native")
has_gpu = comm.rank % 2 == 0
for way in ("host", "direct"):  # here MPI takes a GPU's memory, as the simulator's is the host's
    os.environ["SPARDL_GPU_MESSAGES"] = way
    mixed = train("cuda" if has_gpu else "native")
    assert len(set(comm.allgather(mixed[0]))) == 1, "ranks differ"
    assert mixed == expected, "a GPU changed bits"
    assert (Counted.sealed > 0) == (has_gpu and way == "direct")

try:
    train("cuda" if comm.rank == 0 else "fortran")
except ValueError as error:
    assert "fortran" in str(error), error
else:
    raise AssertionError("a wrong backend was accepted")
print("rank done")
