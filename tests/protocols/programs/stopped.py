"""A rank is stopped for seconds, again and again, wherever it happens to be: the others go on, and it catches up."""

import hashlib
import os
import subprocess
import time

import numpy as np
from mpi4py import MPI
from real import RealRna, make_part

from spardl.protocols.rna.policies import PowerOfChoices

world = MPI.COMM_WORLD
P, me = world.size, world.rank
N, SECONDS, STOPPED = 5000, 9.0, 2.0

part, waiting = make_part("sparse", N, 100)
rna = RealRna(world, part, waiting, PowerOfChoices(2), patience=0.2)
rng = np.random.default_rng(me)
applied, deposited, digest = np.zeros(N), np.zeros(N), hashlib.blake2b()
times = []


def apply():
    for result, _ in rna.collect():
        applied[result.vector.indices] += result.vector.values
        digest.update(result.vector.values.tobytes())
        times.append(time.time())


world.Barrier()
rna.start()
if me == P - 1:
    stops = f"sleep 1; kill -STOP {os.getpid()}; sleep {STOPPED}; kill -CONT {os.getpid()}; "
    subprocess.Popen(["sh", "-c", 2 * stops])
deadline = time.monotonic() + SECONDS
longest = 0.0
while time.monotonic() < deadline:
    started = time.monotonic()
    time.sleep(rng.uniform(0.005, 0.02))
    grad = rng.integers(-9, 10, N).astype(float)
    deposited += grad
    rna.deposit(grad, len(times))
    apply()
    longest = max(longest, time.monotonic() - started)
rna.close()
apply()

total, left = np.empty(N), np.empty(N)
world.Allreduce(deposited, total)
world.Allreduce(np.ascontiguousarray(part.reducer.residual), left)
np.testing.assert_array_equal(total, applied + left)
assert len(set(world.allgather(digest.hexdigest()))) == 1
assert len(set(world.allgather(len(times)))) == 1
if me == P - 1:
    assert longest > 0.9 * STOPPED, longest  # it was stopped
else:
    assert longest < 0.9 * STOPPED, longest  # the others did not wait for it
assert len(times) > 5 * (SECONDS - 2 * STOPPED)
