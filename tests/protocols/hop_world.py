"""Hop on ranks in one thread: all of its processes, and training that moves fractions."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from spardl.effects import Compute
from spardl.protocols.hop.notes import WORKER
from spardl.protocols.hop.training import Training
from spardl.protocols.hop.worker import Worker
from spardl.protocols.liveness import services
from spardl.runtime.process import Program

N = 3


class ExactPart:
    """Models are lists of fractions; weights of the graph are fractions too, of small denominators."""

    def write(self, model):
        return np.frombuffer(" ".join(map(str, model)).encode(), np.uint8)

    def read(self, array, sender):
        return [Fraction(number) for number in bytes(array).decode().split()]

    def blend(self, model, blend, before=None):
        own = model if before is None else before
        parts = [(blend.own, own), *((weight, tagged.update) for weight, tagged in blend.updates)]
        shares = [(Fraction(weight).limit_denominator(1000), part) for weight, part in parts]
        mean = [sum(share * part[e] for share, part in shares) for e in range(N)]
        return mean if before is None else [m + a - b for m, a, b in zip(mean, model, before, strict=True)]


@dataclass
class Replica:
    training: Training
    model: list = field(default_factory=lambda: [Fraction(0)] * N)
    moved: list = field(default_factory=lambda: [Fraction(0)] * N)
    models: list = field(default_factory=list)  # after each step

    def train(self, count, numbers, slowness, pace=0.01, fails_at=None):
        yield from self.training.begin(list(self.model))
        while self.training.iteration < count:
            for _ in range(slowness):
                yield Compute(pace)
            if self.training.iteration == fails_at:
                raise ArithmeticError(f"in iteration {fails_at}")
            move = [Fraction(int(number)) for number in numbers.integers(-9, 10, N)]
            self.moved = [a + b for a, b in zip(self.moved, move, strict=True)]
            self.model = [a + b for a, b in zip(self.model, move, strict=True)]
            self.model = yield from self.training.blend(list(self.model))
            self.models.append((self.training.iteration, tuple(self.model)))
        yield from self.training.close()
        return self


class Watched:
    """Looks at all workers whenever one of them moves, until the first has left: gaps, tokens, and what is held."""

    def __init__(self, graph, settings):
        self.graph, self.settings = graph, settings
        self.workers = []
        self.gaps = np.zeros((graph.ranks, graph.ranks), int)  # how far the first was ahead of the second, at most
        self.left = False

    def run(self, worker):
        process, answer = worker.run(), None
        while True:
            try:
                ask = process.send(answer)
            except StopIteration as stop:
                self.left = True
                return stop.value
            if not self.left:
                self.look()
            answer = yield ask

    def look(self):
        iterations = np.array([worker.iteration for worker in self.workers])
        np.maximum(self.gaps, iterations[:, None] - iterations[None, :], out=self.gaps)


def replicas(counts, rng, graph, settings, *, limit=2e3, grace=5.0, fails=None, slowness=(0, 1, 5, 20), pace=0.01):
    """Replicas, their programs and who watches them; a count says how many iterations a rank goes through."""
    settings.require_legal(graph)
    made, programs, watched = [], [], Watched(graph, settings)
    for me, count in enumerate(counts):
        replica = Replica(Training(me, limit=limit, grace=grace))
        fails_at = fails[1] if fails is not None and fails[0] == me else None
        numbers = np.random.default_rng(rng.randrange(2**32))
        process = replica.train(count, numbers, rng.choice(slowness), pace, fails_at)
        worker = Worker(me, graph, settings, ExactPart())
        watched.workers.append(worker)
        made.append(replica)
        programs.append(Program({WORKER: watched.run(worker)}, services(me, graph.ranks), process))
    return made, programs, watched
