"""Rank 1 is killed in the middle of a reduce; the job has to end with an error, soon."""

import os
import signal

from checks import gradient, world

import spardl

allreduce = spardl.SparseAllreduce(world, 1000, k=100, timeout=8)
for step in range(1000):
    grad = gradient(world.rank, step, 1000)
    if step == 5 and world.rank == 1:
        task = allreduce.start(grad)
        task.advance()
        os.kill(os.getpid(), signal.SIGKILL)
    allreduce.reduce(grad)
print("rank done")
