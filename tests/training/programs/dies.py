"""A rank is killed in the middle of training with a system that does not wait for everyone."""

import os
import signal
import sys

import torch
from mpi.programs.checks import world
from vector_model import Vector, integers, step

import spardl.torch as spt

SYNCS = {"rna": spt.RNA(), "preduce": spt.PartialReduce(2), "hop": spt.Hop("ring"), "gossip": spt.Gossip()}

model = Vector()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
handle = spt.distribute(optimizer, model, sync=SYNCS[sys.argv[1]], comm=world)
for number in range(100_000):
    if world.rank == 1 and number == 20:
        print("dies", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    step(model, optimizer, integers())
