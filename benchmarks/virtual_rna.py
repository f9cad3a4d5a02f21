"""RNA's programs for virtual time: training that computes at a pace and sums eight numbers. Not run by itself."""

import numpy as np

from spardl.effects import Compute, Process
from spardl.paces import Pace, parse_pace
from spardl.protocols.rna.parts import DensePart
from spardl.protocols.rna.policies import PowerOfChoices
from spardl.protocols.rna.program import rna
from spardl.protocols.rna.training import Training
from spardl.protocols.rna.waiting import Weighted
from spardl.runtime.process import Program

STALENESS = 3
NEVER = 1e9  # seconds: nobody is taken for dead
NUMBERS = 8


def rna_programs(ranks: int, rounds: int, pace: str) -> tuple[list[Training], list[Program]]:
    """One of each per rank. All stop when they have seen so many rounds, those under way included."""
    groups, spoken = [tuple(range(ranks))], parse_pace(pace)
    trainings = [Training(me, groups, STALENESS, limit=NEVER, grace=NEVER / 10) for me in range(ranks)]
    programs = [
        rna(
            me,
            groups,
            DensePart(NUMBERS, "float32"),
            Weighted(STALENESS),
            PowerOfChoices(2),
            patience=NEVER,
            limit=NEVER,
            training=_train(training, rounds, spoken, me, ranks),
        )
        for me, training in enumerate(trainings)
    ]
    return trainings, programs


def _train(training: Training, rounds: int, pace: Pace, me: int, ranks: int) -> Process[int]:
    """Returns how many rounds it has seen."""
    version = iteration = 0
    gradient = np.ones(NUMBERS, np.float32)
    while version < rounds:
        yield Compute(pace.seconds(me, ranks, iteration))
        iteration += 1
        yield from training.deposit(gradient, version)
        version += len((yield from training.collect()))
    yield from training.close()
    return version + len((yield from training.collect()))
