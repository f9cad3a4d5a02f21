"""Partial Reduce beside all-reduce and eager-SGD's majority in virtual time. Not run by itself.

Nothing is trained: ranks compute at a pace, and messages have sizes only. Who talks to whom, and when, is up to the
systems' own processes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import mean
from typing import NamedTuple

from spardl import virtual
from spardl.bench.table import Column, Row
from spardl.cost.sized import sized
from spardl.cost.traffic import Setting
from spardl.delays import Delay, SlowShare
from spardl.effects import Collective, Compute, Join, Now, Process, Size
from spardl.paces import LogNormal, Pace
from spardl.protocols.metrics import Metrics
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.notes import Assemble
from spardl.protocols.preduce.program import preduce
from spardl.protocols.preduce.settings import Settings
from spardl.protocols.preduce.sync_graph import SyncGraph
from spardl.protocols.preduce.training import Training as GroupTraining
from spardl.protocols.rna.policies import Majority
from spardl.protocols.rna.program import rna
from spardl.protocols.rna.training import Training as RoundTraining
from spardl.protocols.rna.waiting import Weighted
from spardl.runtime.network import cluster
from spardl.runtime.process import Program

RATE, LATENCY, OVERHEAD = "10gbit", "50us", "5us"
JITTER, JITTER_OF_MANY = 0.05, 0.3  # standard deviations of the logarithm of a step's time
STALENESS = 4  # RNA's default
NEVER = 1e9  # seconds: nobody is taken for dead
FLOAT = 4  # bytes

PREDUCE_COLUMNS = (
    Column("model", "model"),
    Column("N", "ranks", "d"),
    Column("HL", "level", "d"),
    Column("system", "system"),
    Column("s per update", "update_s", ".4f"),
    Column("the paper's", "paper_s", ".3f"),
    Column("error %", "error_percent", "+.0f"),
    Column("updates / s", "rate", ".2f"),
    Column("waited %", "waited_percent", ".0f"),
    Column("ρ", "rho", ".3f"),
    Column("staleness", "staleness", ".2f"),
    Column("simulated in s", "seconds", ".1f"),
)
PREDUCE_CAPTION = (
    f"{RATE}, {LATENCY} latency, {OVERHEAD} a message. An update is one all-reduce, one round of majority or one "
    "group's average. Weights are constant;\ndynamic ones take the same time. A model's first row is fitted to the "
    "paper by the time of a step; all others are predicted."
)


# -- systems -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """``steps``: how many a rank makes, about. ``pace``: how long each takes."""

    ranks: int
    parameters: int
    steps: int
    pace: Pace

    @property
    def model(self) -> Size:
        return Size(FLOAT * self.parameters)

    def step(self, me: int, number: int) -> Compute:
        return Compute(self.pace.seconds(me, self.ranks, number))


class Stop(NamedTuple):
    """One rank's training has seen enough updates."""

    at: float  # seconds
    updates: int  # of all ranks, by then
    waited: float  # seconds in which it did not compute


class Outcome(NamedTuple):
    update_seconds: float
    updates: int
    waited: float  # share of a rank's time
    staleness: float  # mean over contributions, in rounds or iterations
    rho: float | None = None


def _outcome(programs: Sequence[Program], metrics: Sequence[Metrics] = ()) -> Outcome:
    trace = virtual(programs, network=cluster(len(programs), RATE, LATENCY, overhead=OVERHEAD))
    stops: list[Stop] = trace.results
    first = min(stops)  # later ones include the end, where groups are smaller
    waited = mean(stop.waited / stop.at for stop in stops)
    return Outcome(first.at / first.updates, first.updates, waited, _mean_staleness(metrics))


def _mean_staleness(metrics: Sequence[Metrics]) -> float:
    """Of all contributions."""
    behind = [(age, times) for own in metrics for age, times in own.staleness.items()]
    return sum(age * times for age, times in behind) / max(1, sum(times for _, times in behind))


RING, RABENSEIFNER = "dense_ring", "dense_rabenseifner"


def sum_sizes(algorithm: str, members: int, position: int, model: Size) -> Collective[Size]:
    """One rank's part in a dense sum, of sizes only."""
    yield from sized(algorithm, Setting(members, model.nbytes // FLOAT, k=0))[position]
    return model


def dense_sum(members: int, position: int, model: Size) -> Collective[Size]:
    """As ``spardl.collectives.dense_sum`` sums long vectors."""
    return sum_sizes(RING if members & (members - 1) else RABENSEIFNER, members, position, model)


# -- all-reduce --------------------------------------------------------------------------------------------------------


def all_reduce(case: Case) -> Outcome:
    """Bulk-synchronous: after every step everyone waits for everyone."""
    outcome = _outcome([Program({}, training=_train_together(case, me)) for me in range(case.ranks)])
    return outcome._replace(rho=SyncGraph(case.ranks).add_all([range(case.ranks)]).rho)


def _train_together(case: Case, me: int) -> Process[Stop]:
    everyone, waited = range(case.ranks), 0.0
    for number in range(case.steps):
        yield case.step(me, number)
        began = yield Now()
        yield Join(everyone, number, dense_sum(case.ranks, me, case.model))
        waited += (yield Now()) - began
    return Stop((yield Now()), case.steps, waited)


# -- Partial Reduce ----------------------------------------------------------------------------------------------------


class SizedAverage:
    """How a rank averages in a group."""

    def average(self, group: Assemble, me: int, offer: Size) -> Collective[Size]:
        return dense_sum(len(group.members), group.members.index(me), offer)

    def take(self, average: Size) -> Size:
        return average


def partial_reduce(case: Case, group: int) -> Outcome:
    history = GroupHistory(case.ranks)
    trainings = [GroupTraining(me, limit=NEVER, grace=NEVER / 10) for me in range(case.ranks)]
    programs = [
        preduce(
            me,
            case.ranks,
            SizedAverage(),
            Settings(group, patience=NEVER),
            history=history,
            training=_train_in_groups(case, group, training, history, me),
        )
        for me, training in enumerate(trainings)
    ]
    outcome = _outcome(programs, [training.metrics for training in trainings])
    return outcome._replace(rho=history.graph.rho)


def _train_in_groups(case: Case, group: int, training: GroupTraining, history: GroupHistory, me: int) -> Process[Stop]:
    enough = case.steps * case.ranks // group
    for number in count():
        yield case.step(me, number)
        yield from training.average(case.model)
        if history.graph.groups >= enough:
            break
    stop = Stop((yield Now()), history.graph.groups, training.metrics.waited_seconds)
    yield from training.close()
    return stop


# -- eager-SGD's majority ----------------------------------------------------------------------------------------------


class SizedGradients(Weighted):
    """Those that wait are combined into one."""

    def _combine(self, waiting: list[tuple[int, Size]]) -> Size:
        return waiting[-1][1]


class SizedRound:
    """How a rank reduces in a round, and sends its result to those who were absent."""

    def __init__(self, model: Size) -> None:
        self._model = model

    def contribute(self, members: tuple[int, ...], rank: int, contribution: Size | None) -> Collective[Size]:
        return dense_sum(len(members), members.index(rank), self._model)

    def undo(self) -> None:
        """There is nothing to take back."""

    def write(self, result: Size) -> tuple[str, Size]:
        return "sum", result

    def read(self, kind: str, message: Size) -> Size:
        return message


def majority(case: Case) -> Outcome:
    """RNA whose rounds wait for one rank that is drawn at random."""
    groups = [tuple(range(case.ranks))]
    trainings = [RoundTraining(me, groups, STALENESS, limit=NEVER, grace=NEVER / 10) for me in range(case.ranks)]
    programs = [
        rna(
            me,
            groups,
            SizedRound(case.model),
            SizedGradients(STALENESS),
            Majority(),
            patience=NEVER,
            limit=NEVER,
            training=_train_in_rounds(case, training, me),
        )
        for me, training in enumerate(trainings)
    ]
    return _outcome(programs, [training.metrics for training in trainings])


def _train_in_rounds(case: Case, training: RoundTraining, me: int) -> Process[Stop]:
    rounds = 0
    for number in count():
        yield case.step(me, number)
        yield from training.deposit(case.model, rounds)
        rounds += len((yield from training.collect()))
        if rounds >= case.steps:
            break
    stop = Stop((yield Now()), rounds, training.metrics.waited_seconds)
    yield from training.close()
    return stop


# -- beside the paper --------------------------------------------------------------------------------------------------

RANKS, LEVELS, MANY = 8, (1, 2, 3), 256
SYSTEMS: dict[str, Callable[[Case], Outcome]] = {
    "all-reduce": all_reduce,
    "majority": majority,
    "Partial Reduce, P = 3": lambda case: partial_reduce(case, 3),
    "Partial Reduce, P = 5": lambda case: partial_reduce(case, 5),
}


class Model(NamedTuple):
    name: str
    parameters: int
    paper: dict[int, tuple[float, ...]]  # Table 1: by HL, seconds per update of each of SYSTEMS


MODELS = (
    Model("ResNet-34", 21_300_000, {1: (0.432, 0.217, 0.140, 0.299), 3: (0.807, 0.349, 0.196, 0.398)}),
    Model("VGG-19", 20_000_000, {1: (0.286, 0.141, 0.093, 0.197), 3: (0.443, 0.199, 0.115, 0.248)}),
    Model("DenseNet-121", 7_000_000, {1: (0.820, 0.397, 0.236, 0.532), 2: (1.273, 0.470, 0.271, 0.576)}),
)


def preduce_rows(steps: int, most_ranks: int, jitter: float = JITTER) -> Iterator[Row]:
    """The paper's eight ranks, then as many as there may be."""
    for model in MODELS:
        base = step_seconds(model, steps, jitter)
        for level in LEVELS:
            case = Case(RANKS, model.parameters, steps, uneven(base, level, jitter))
            paper = model.paper.get(level, (None,) * len(SYSTEMS))
            for (name, system), told in zip(SYSTEMS.items(), paper, strict=True):
                yield {"model": model.name, "level": level, "system": name, **_figures(case, system, told)}
    yield _many_ranks(MODELS[0], steps, min(MANY, most_ranks))


def _many_ranks(model: Model, steps: int, ranks: int) -> Row:
    pace = uneven(step_seconds(model, steps, JITTER), 1, JITTER_OF_MANY)
    figures = _figures(Case(ranks, model.parameters, steps, pace), lambda case: partial_reduce(case, 4), None)
    return {"model": model.name, "level": 1, "system": "Partial Reduce, P = 4", **figures}


def step_seconds(model: Model, steps: int, jitter: float) -> float:
    """What a step takes if all-reduce among equal ranks takes as long as in the paper."""

    def update(base: float) -> float:
        return all_reduce(Case(RANKS, model.parameters, steps, uneven(base, 1, jitter))).update_seconds

    told = base = model.paper[1][0]
    communication = update(0.0)
    for _ in range(3):  # the rest of an update is about proportional to a step
        base *= (told - communication) / (update(base) - communication)
    return base


def uneven(seconds: float, level: int, jitter: float) -> Pace:
    """HL: so many of eight ranks share one device, so each of these takes so many times as long."""
    return Pace(LogNormal(seconds, jitter), Delay((SlowShare(level / RANKS, level),)))


def _figures(case: Case, system: Callable[[Case], Outcome], paper: float | None) -> Row:
    began = time.perf_counter()
    outcome = system(case)
    seconds, update = time.perf_counter() - began, outcome.update_seconds
    return {
        **{"ranks": case.ranks, "updates": outcome.updates, "update_s": update, "rate": 1 / update, "paper_s": paper},
        **{"error_percent": None if paper is None else 100 * (update / paper - 1)},
        **{"waited_percent": 100 * outcome.waited, "rho": outcome.rho, "staleness": outcome.staleness},
        "seconds": seconds,
    }
