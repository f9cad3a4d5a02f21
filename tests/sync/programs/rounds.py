"""Real ranks that deposit when they please: all see the same rounds, and nothing is lost."""

import hashlib
import threading
import time

import numpy as np
from mpi4py import MPI

from spardl import kernels
from spardl.runtime.group import resolve
from spardl.sync.box import SummingBox, WeightingBox
from spardl.sync.engine import Engine
from spardl.sync.parts import DensePart, SparsePart
from spardl.sync.policies import All, Majority, PowerOfChoices, Solo
from spardl.wire import Codec

world = MPI.COMM_WORLD
P, me = world.size, world.rank
N, K, STEPS = 5000, 100, 25


def part(kind):
    chosen = kernels.load()
    if kind != "dense":
        values = "same" if kind == "sparse" else kind
        return SparsePart(N, K, "float64", chosen, Codec(chosen, values=values)), SummingBox(3, 60)
    return DensePart(N, "float64"), WeightingBox(3, 60)


def train(kind, policy, seed, steps=STEPS):
    """Deposits integers; what was applied here, the hash of all rounds' results, and what is left."""
    rng = np.random.default_rng([me, seed])
    how, box = part(kind)
    engine = Engine(resolve(world, 60), box, how, policy, patience=0.5, timeout=60)
    engine.start()
    applied, deposited = np.zeros(N), np.zeros(N)
    digest, version = hashlib.blake2b(), 0

    def apply():
        nonlocal version
        for result, _ in box.collect():
            applied[result.vector.indices] += result.vector.values
            digest.update(result.vector.values.tobytes() + bytes([result.contributors]))
            version += 1

    for _ in range(steps):
        time.sleep(rng.uniform(0, 0.01))
        grad = rng.integers(-3000, 3001, N).astype(float)  # more than 16 bits can hold
        deposited += grad
        box.deposit(grad, version)
        if isinstance(policy, All):
            box.wait()
        apply()
    box.close()
    engine.join()
    apply()
    assert not any(thread.name == "spardl-rna" for thread in threading.enumerate())
    versions, digests = world.allgather(version), world.allgather(digest.hexdigest())
    assert len(set(versions)) == len(set(digests)) == 1, (versions, digests)
    assert version == len(box.metrics.contributors)
    assert len(box.log) <= 2, list(box.log)  # what nobody will ask for is forgotten
    return applied, deposited, how, box


def law(applied, deposited, residual):
    total, left = np.empty(N), np.empty(N)
    world.Allreduce(deposited, total)
    world.Allreduce(np.ascontiguousarray(residual), left)
    np.testing.assert_array_equal(total, applied + left)


for number, policy in enumerate([All(), PowerOfChoices(2), Majority(), Solo()]):
    applied, deposited, how, box = train("sparse", policy, number)
    law(applied, deposited, how.reducer.residual)
    assert sum(box.metrics.staleness.values()) == STEPS
    applied, deposited, how, _ = train("bf16", policy, number)  # also what a rank alone rounds to nothing
    law(applied, deposited, how.reducer.residual)
    applied, deposited, _, box = train("dense", policy, number)
    if isinstance(policy, All):  # one gradient each in every round: no weights, no drops
        law(applied, deposited, np.zeros(N))
        assert box.metrics.contributors == [P] * STEPS
    assert box.metrics.dropped + sum(box.metrics.staleness.values()) == STEPS
    assert max(box.metrics.staleness) <= 3
