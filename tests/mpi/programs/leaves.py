"""Rank 1 ends by an exception of its own, not in any call: between two, or with a reduce under way."""

import sys
import time

import numpy as np
from mpi4py import MPI

import spardl

comm = MPI.COMM_WORLD
reducer = spardl.SparseAllreduce(comm, 1000, k=10)
gradient = np.random.default_rng(comm.rank).standard_normal(1000).astype(np.float32)
reducer.reduce(gradient)
if comm.rank == 1:
    if sys.argv[1] == "in":
        task = reducer.start(gradient)
        task.advance()
    comm.Barrier()
    raise KeyError("no such file")
comm.Barrier()  # else that reduce might get so far that the others can end it
started = time.monotonic()
try:
    reducer.reduce(gradient)
except spardl.PeerError as error:
    assert str(error) == "rank 1 failed with KeyError: 'no such file'", error
    assert time.monotonic() - started < 30  # of 300
    print("rank done", flush=True)
