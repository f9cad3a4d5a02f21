"""Partial Reduce on ranks in one thread: all of its processes, and training that moves integers."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from spardl import kernels
from spardl.collectives.allgather import gather
from spardl.effects import Compute
from spardl.protocols.models import Model
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.notes import Assemble
from spardl.protocols.preduce.parts import DensePart, SparsePart
from spardl.protocols.preduce.program import preduce
from spardl.protocols.preduce.training import Training
from spardl.wire import Codec

N = 7
UNIT = float(math.lcm(*range(1, 9)) ** 4)  # divided by the size of any group, several times in a row


class Seen(NamedTuple):
    """Of a group, by one of its members: its model before, and after."""

    group: Assemble
    offered: tuple
    after: tuple


def share_of(group):
    """A member's weight, as a fraction."""
    return Fraction(group.weight).limit_denominator(1000)


@dataclass
class Replica:
    """What training of one rank has seen."""

    training: Training
    model: np.ndarray
    moved: np.ndarray  # by its own steps
    groups: list = field(default_factory=list)

    def train(self, moves, slowness, pace, fails_at=None, until=None):
        for number, move in enumerate(moves):
            if until is not None and self.training.iteration >= until:
                break
            for _ in range(slowness):
                yield Compute(pace)
            if number == fails_at:
                raise ArithmeticError(f"in iteration {number}")
            self.model = self.model + move
            self.moved += move
            mean = yield from self.training.average(Model(self.model.copy(), N))
            offered, self.model = self.model, np.array(mean.result.values)
            self.groups.append(Seen(mean.group, tuple(offered), tuple(self.model)))
        yield from self.training.close()
        return self


class ExactPart:
    """Averages in fractions, which no rounding can hide anything in."""

    def average(self, group, me, offer):
        share = share_of(group)
        text = " ".join(str(share * value) for value in offer.values)
        frames = yield from gather(
            range(len(group.members)), group.members.index(me), np.frombuffer(text.encode(), "u1")
        )
        summands = [[Fraction(number) for number in bytes(frame).decode().split()] for frame in frames]
        return Model(np.array([sum(column) for column in zip(*summands, strict=True)], object), N)

    def take(self, average):
        return average


def make_part(k):
    if k is None:
        return ExactPart()
    if k == N:
        return DensePart()
    chosen = kernels.load("numpy")
    return SparsePart(k, np.zeros(N), chosen, Codec(chosen))


def replicas(
    counts, rng, settings, *, k=None, limit=2e3, grace=5.0, fails=None, slowness=(0, 1, 5, 20), pace=0.01, until=None
):
    """Replicas, their programs and the groups that there were; a count says how many steps a rank makes.

    ``k``: so many differences are sent, or all weights if that is N; None: all, in fractions. ``fails``: a rank, and
    where its training raises. ``until``: an iteration with which all stop.
    """
    numbers = np.random.default_rng(rng.randrange(2**32))
    made, programs, history = [], [], GroupHistory(len(counts))
    for me, count in enumerate(counts):
        zero, unit = (Fraction(0), Fraction(1)) if k is None else (0.0, UNIT)
        replica = Replica(Training(me, limit=limit, grace=grace), np.full(N, zero), np.full(N, zero))
        moves = list(numbers.integers(-9, 10, (count, N)) * unit)
        fails_at = fails[1] if fails is not None and fails[0] == me else None
        process = replica.train(moves, rng.choice(slowness), pace, fails_at, until)
        made.append(replica)
        programs.append(preduce(me, len(counts), make_part(k), settings, history=history, training=process))
    return made, programs, history
