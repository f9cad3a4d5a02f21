"""RNA on ranks in one thread: all of its processes, and training that deposits integers."""

from dataclasses import dataclass, field

import numpy as np

from spardl import kernels
from spardl.effects import Compute
from spardl.protocols.rna.parts import DensePart, Part, Shift, SparsePart
from spardl.protocols.rna.policies import All
from spardl.protocols.rna.program import rna
from spardl.protocols.rna.training import Training
from spardl.protocols.rna.waiting import Summed, Weighted
from spardl.wire import Codec

N = 7


@dataclass
class Replica:
    """What training of one rank has seen."""

    training: Training
    part: Part
    gradients: list
    deposited: np.ndarray = field(default_factory=lambda: np.zeros(N))
    applied: list = field(default_factory=list)  # what every round gave, in order
    total: np.ndarray = field(default_factory=lambda: np.zeros(N))  # of rounds with gradients
    weights: np.ndarray = field(default_factory=lambda: np.zeros(N))
    version: int = 0
    regroups: bool = False

    def train(self, slowness, waits, period, pace, fails_at):
        for number, gradient in enumerate(self.gradients):
            begun = self.version
            for _ in range(slowness):
                yield Compute(pace)
            if number == fails_at:
                raise ArithmeticError(f"in iteration {number}")
            self.deposited += gradient
            terms = f"in iteration {number}"
            yield from self.training.deposit(gradient, begun, terms=terms, pace=pace if period else None)
            if waits:
                yield from self.training.wait()
            yield from self.apply((yield from self.training.collect()), period)
            self.regroups |= self.training.wants_regroup
        yield from self.training.close()
        yield from self.apply((yield from self.training.collect()), period)
        return self

    def apply(self, rounds, period):
        for result, terms in rounds:
            self.version += 1
            if isinstance(result, Shift):
                self.weights += result.delta
                self.applied.append(("shift", result.delta.tobytes()))
                continue
            dense = result.vector.to_dense()
            self.total += dense
            self.weights += dense
            self.applied.append((dense.tobytes(), result.contributors, terms))
            if period and self.version % period == 0:
                yield from self.training.push(self.weights.copy())

    @property
    def owed(self):
        return self.part.reducer.residual if isinstance(self.part, SparsePart) else np.zeros(N)


def make_part(sparse):
    chosen = kernels.load("numpy")
    return SparsePart(N, 3, "float64", chosen, Codec(chosen)) if sparse else DensePart(N, "float64")


def replicas(
    counts,
    rng,
    policy,
    *,
    sparse=False,
    summed=True,
    staleness=3,
    groups=None,
    period=0,
    paces=None,
    regroups=False,
    limit=1e6,
    grace=5.0,
    fails=None,
    slowness=(0, 1, 5, 20),
):
    """Replicas and their programs, one per count, which says how many gradients it brings.

    ``fails``: a rank, and the iteration in which its training raises.
    """
    numbers = np.random.default_rng(rng.randrange(2**32))
    groups = groups or [tuple(range(len(counts)))]
    made, programs = [], []
    for me, count in enumerate(counts):
        part = make_part(sparse)
        training = Training(me, groups, staleness, limit=limit, grace=grace)
        replica = Replica(training, part, list(numbers.integers(-9, 10, (count, N)).astype(np.float64)))
        pace = 0.01 if paces is None else paces[me]
        fails_at = fails[1] if fails is not None and fails[0] == me else None
        process = replica.train(rng.choice(slowness), isinstance(policy, All), period, pace, fails_at)
        program = rna(
            me,
            groups,
            part,
            Summed() if summed else Weighted(staleness),
            policy,
            patience=1.0,
            limit=limit,
            terms="at first",
            hierarchical=period > 0,
            regroups=regroups,
            training=process,
        )
        made.append(replica)
        programs.append(program)
    return made, programs


def assert_law(made, groups):
    """In each group: all ranks have applied the same, and nothing is lost or counted twice."""
    for group in groups:
        ranks = [made[rank] for rank in group]
        assert all(replica.applied == ranks[0].applied for replica in ranks)
        deposited = sum(replica.deposited for replica in ranks)
        np.testing.assert_array_equal(deposited, ranks[0].total + sum(replica.owed for replica in ranks))
