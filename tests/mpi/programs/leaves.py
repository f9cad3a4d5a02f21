"""Rank 1 leaves where it should not, in the way that the argument names; the others hear of it, and who it was."""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

import spardl

SECONDS = 4  # for those who wait for a rank that cannot tell them
comm, how = MPI.COMM_WORLD, sys.argv[1]
Allreduce = spardl.SparseAllreduce  # from here on a rank that fails is heard of
gradient = np.random.default_rng(comm.rank).standard_normal(1000).astype(np.float32)


def told(error):
    """By the right rank, and long before the time limit of 300 seconds; or at it, if rank 1 could tell nobody."""
    assert time.monotonic() - started < 60, time.monotonic() - started
    assert error.ranks == (1,), (error.ranks, str(error))
    print(f"<rank done: {type(error).__name__}: {error}>\n", end="", flush=True)


started = time.monotonic()
if how == "before":
    if comm.rank == 1:
        raise KeyError("no such file")
    try:
        Allreduce(comm, 1000, k=10)
    except spardl.PeerError as error:
        told(error)
        sys.exit(1)
reducer = Allreduce(comm, 1000, k=10, timeout=SECONDS if how == "frozen" else None)
reducer.reduce(gradient)
if comm.rank == 1:
    if how == "in":
        task = reducer.start(gradient)
        task.advance()
    comm.Barrier()
    if how == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "exit":
        sys.exit(3)
    raise KeyError("no such file")
comm.Barrier()  # else that reduce might get so far that the others can end it
started = time.monotonic()
try:
    reducer.reduce(gradient)
except (spardl.PeerError, spardl.PeerTimeout) as error:
    told(error)
    if how == "frozen":
        raise
