"""Real ranks that deposit when they please: all see the same rounds, and nothing is lost."""

import hashlib
import threading
import time

import numpy as np
from mpi4py import MPI
from real import STALENESS, RealRna, make_part

from spardl.protocols.rna.policies import All, Majority, PowerOfChoices, Solo

world = MPI.COMM_WORLD
P, me = world.size, world.rank
N, K, STEPS = 5000, 100, 25


def train(kind, policy, seed, steps=STEPS):
    """Deposits integers; what was applied here, what was deposited, the part and the metrics."""
    rng = np.random.default_rng([me, seed])
    part, waiting = make_part(kind, N, K)
    rna = RealRna(world, part, waiting, policy)
    rna.start()
    applied, deposited = np.zeros(N), np.zeros(N)
    digest, version = hashlib.blake2b(), 0

    def apply():
        nonlocal version
        for result, _ in rna.collect():
            applied[result.vector.indices] += result.vector.values
            digest.update(result.vector.values.tobytes() + bytes([result.contributors]))
            version += 1

    for _ in range(steps):
        time.sleep(rng.uniform(0, 0.01))
        grad = rng.integers(-3000, 3001, N).astype(float)  # more than 16 bits can hold
        deposited += grad
        rna.deposit(grad, version)
        if isinstance(policy, All):
            rna.wait()
        apply()
    rna.close()
    apply()
    metrics = rna.training.metrics
    assert not any(thread.name == "spardl-rna" for thread in threading.enumerate())
    versions, digests = world.allgather(version), world.allgather(digest.hexdigest())
    assert len(set(versions)) == len(set(digests)) == 1, (versions, digests)
    assert version == len(metrics.contributors)
    return applied, deposited, part, metrics


def law(applied, deposited, residual):
    total, left = np.empty(N), np.empty(N)
    world.Allreduce(deposited, total)
    world.Allreduce(np.ascontiguousarray(residual), left)
    np.testing.assert_array_equal(total, applied + left)


for number, policy in enumerate([All(), PowerOfChoices(2), Majority(), Solo()]):
    for kind in ("sparse", "bf16"):  # also what a rank alone rounds to nothing
        applied, deposited, part, metrics = train(kind, policy, number)
        law(applied, deposited, part.reducer.residual)
        assert sum(metrics.staleness.values()) == STEPS
    applied, deposited, _, metrics = train("dense", policy, number)
    if isinstance(policy, All):  # one gradient each in every round: no weights, no drops
        law(applied, deposited, np.zeros(N))
        assert metrics.contributors == [P] * STEPS
    assert metrics.dropped + sum(metrics.staleness.values()) == STEPS
    assert max(metrics.staleness) <= STALENESS
