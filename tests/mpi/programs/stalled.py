"""A rank is stopped inside a reduce, or comes late: what is printed meanwhile, and how the job ends."""

import logging
import os
import signal
import sys
import time

from checks import gradient, world

import spardl

mode, victim = sys.argv[1], int(sys.argv[2])
WARN_AFTER, TIMEOUT = 1.5, 5.0
N = 1000


class Stamp(logging.Formatter):
    def format(self, record):
        return f"{super().format(record)}\n  [printed by rank {world.rank} after {time.monotonic() - began:.1f} s]"


handler = logging.StreamHandler()
handler.setFormatter(Stamp())
logging.getLogger("spardl.stall").addHandler(handler)

if mode == "first" and world.rank == victim:
    time.sleep(1.5 * WARN_AFTER)
began = time.monotonic()
allreduce = spardl.SparseAllreduce(world, N, k=100, timeout=TIMEOUT, warn_after=WARN_AFTER)
for step in range(3):
    allreduce.reduce(gradient(world.rank, step, N))
world.Barrier()
began = time.monotonic()
if mode == "stop" and world.rank == victim:
    task = allreduce.start(gradient(world.rank, 3, N))
    task.advance()  # its message for round 0 is out
    os.kill(os.getpid(), signal.SIGSTOP)
elif mode == "late" and world.rank == victim:
    time.sleep(1.5 * WARN_AFTER)
else:
    time.sleep(0.2)
try:
    allreduce.reduce(gradient(world.rank, 3, N))
except spardl.PeerTimeout as error:
    print(f"rank {world.rank}: PeerTimeout of {error.ranks} after {time.monotonic() - began:.1f} s", flush=True)
    time.sleep(1.0)  # the others are to be heard too, before this one's end ends the job
    raise
print("rank done", flush=True)
