"""RNA in a program that ends without ``finish``: as it should, or by an exception on rank 1. Nobody waits for long."""

import sys

import torch
from mpi4py import MPI

import spardl.torch as spt

rank = MPI.COMM_WORLD.rank
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handle = spt.distribute(optimizer, model, sync=spt.RNA())
for step in range(30):
    if rank == 1 and step == 10 and sys.argv[1] == "fails":
        raise KeyError("no such file")
    optimizer.zero_grad()
    model(torch.randn(4, 10)).square().mean().backward()
    optimizer.step()
if sys.argv[1] == "fails":
    handle.finish()  # raises
print("rank done", flush=True)
