"""Hop beside all-reduce and AD-PSGD in virtual time, on the cluster of Hop's paper. Not run by itself.

Nothing is trained: ranks compute at a pace, and messages have sizes only. Who waits for whom, and when, is up to the
systems' own processes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
from virtual_preduce import FLOAT, JITTER, NEVER, RING, sum_sizes

from spardl import graph, virtual
from spardl.bench.figure import new_figure, save
from spardl.bench.table import Column, Row
from spardl.delays import Delay, RandomSlowdown, SlowShare
from spardl.effects import Compute, Join, Now, Process, Size
from spardl.graphs import Graph
from spardl.paces import LogNormal, Pace
from spardl.protocols.gossip.program import gossip
from spardl.protocols.gossip.training import Training as GossipTraining
from spardl.protocols.hop.intake import Blend
from spardl.protocols.hop.program import hop
from spardl.protocols.hop.settings import Settings, Skip
from spardl.protocols.hop.training import Training as HopTraining
from spardl.protocols.metrics import Metrics
from spardl.runtime.network import cluster
from spardl.runtime.process import Program

RATE, LATENCY, OVERHEAD = "1gbit", "50us", "5us"
RANKS, PER_HOST = 16, 4
MANY, MANY_STEPS = 512, 200
PARAMETERS = 9_225_610  # VGG-11 for CIFAR-10: eight convolutions and one linear layer
STEP = 2.0  # seconds of computing; a model takes 0.3 s from host to host
MAX_GAP, STALENESS = 6, 5  # the paper's staleness; with fewer tokens it would not matter

HOP_COLUMNS = (
    Column("slow", "scenario"),
    Column("N", "ranks", "d"),
    Column("graph", "graph"),
    Column("system", "system"),
    Column("iterations / s", "rate", ".3f"),
    Column("of nobody slow %", "kept_percent", ".0f"),
    Column("× standard", "speedup", ".2f"),
    Column("gap", "gap", "d"),
    Column("bound", "bound", "d"),
    Column("within", "within"),
    Column("waited %", "waited_percent", ".0f"),
    Column("for tokens %", "tokens_percent", ".0f"),
    Column("late %", "late_percent", ".1f"),
    Column("skipped %", "skipped_percent", ".1f"),
    Column("simulated in s", "seconds", ".1f"),
)


def hop_caption(rows: Sequence[Row]) -> str:
    return (
        f"{PER_HOST} ranks on a host; {RATE}, {LATENCY} latency, {OVERHEAD} a message between hosts. A step takes "
        f"{rows[0]['step_s']:g} s, a model has {PARAMETERS:,} parameters, max_gap is {MAX_GAP}.\n"
        "Iterations are those that a rank computes, without those that it skips; the mean over ranks. gap: the largest "
        "between any two ranks, and its bound."
    )


@dataclass(frozen=True, slots=True)
class Case:
    """``steps``: how many a rank could make in the time that there is, if it was never slow and never waited."""

    ranks: int
    steps: int
    step_seconds: float
    pace: Pace

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds

    @property
    def model(self) -> Size:
        return Size(FLOAT * PARAMETERS)

    @property
    def hosts(self) -> list[int]:
        return [rank // PER_HOST for rank in range(self.ranks)]

    def step(self, me: int, number: int) -> Compute:
        return Compute(self.pace.seconds(me, self.ranks, number))

    def graph(self, name: str) -> Graph:
        return graph(name, self.ranks, hosts=self.hosts)


# -- what is watched ---------------------------------------------------------------------------------------------------


class Gaps:
    """The most iterations that one rank was ahead of another, by pairs."""

    def __init__(self, ranks: int) -> None:
        self._iterations = np.zeros(ranks, int)
        self.seen = np.zeros((ranks, ranks), int)

    def enter(self, me: int, iteration: int) -> None:
        self._iterations[me] = iteration
        np.maximum(self.seen[me], iteration - self._iterations, out=self.seen[me])


class Stretch(NamedTuple):
    """The second half of a rank's training: the first may be spent on running ahead until a bound is reached."""

    seconds: float
    before: Metrics
    after: Metrics

    @classmethod
    def between(cls, half: tuple[float, Metrics], end: tuple[float, Metrics]) -> "Stretch":
        return cls(end[0] - half[0], half[1], end[1])

    def counted(self, name: str) -> float:
        return float(getattr(self.after, name) - getattr(self.before, name))


class Outcome(NamedTuple):
    stretches: list[Stretch]
    gap: int | None = None
    bound: int | None = None  # None: there is none
    is_within: bool = True  # for every pair of ranks

    @property
    def rate(self) -> float:
        """Iterations per second, the mean over ranks."""
        return mean(own.counted("iterations") / own.seconds for own in self.stretches)

    def share_of_time(self, name: str) -> float:
        return mean(own.counted(name) / own.seconds for own in self.stretches)

    def share_of(self, part: str, rest: str) -> float:
        """Of things that were counted: how many of both are of the one kind."""
        one, other = (sum(own.counted(name) for own in self.stretches) for name in (part, rest))
        return one / max(1, one + other)


def _run(case: Case, programs: Sequence[Program]) -> list[Stretch]:
    network = cluster(case.ranks, RATE, LATENCY, overhead=OVERHEAD, ranks_per_host=PER_HOST)
    stretches: list[Stretch] = virtual(programs, network=network).results
    return stretches


# -- systems -----------------------------------------------------------------------------------------------------------


class SizedPart:
    """How models of Hop and gossip are sent and averaged."""

    def write(self, model: Size) -> Size:
        return model

    def read(self, array: Size, sender: int) -> Size:
        return array

    def blend(self, model: Size, blend: Blend, before: Size | None = None) -> Size:
        return model

    def half_way(self, sent: Size, received: Size) -> Size:
        return sent

    def moved(self, model: Size, shift: Size) -> Size:
        return model


def _train(case: Case, training: HopTraining | GossipTraining, me: int, gaps: Gaps) -> Process[Stretch]:
    """Gaps count only while everyone trains: who has left is not waited for."""
    yield from training.begin(case.model)
    marks: list[tuple[float, Metrics]] = []  # in the middle, and at the end
    for number in count():
        yield case.step(me, number)
        yield from training.blend(case.model)
        now: float = yield Now()
        if now < case.seconds:
            gaps.enter(me, training.iteration)
        if now >= case.seconds * (1 + len(marks)) / 2:
            marks.append((now, copy(training.metrics)))
        if len(marks) == 2:
            break
    yield from training.close()
    return Stretch.between(*marks)


def run_hop(case: Case, name: str, settings: Settings) -> Outcome:
    where, gaps = case.graph(name), Gaps(case.ranks)
    programs = []
    for me in range(case.ranks):
        training = HopTraining(me, limit=NEVER, grace=NEVER / 10)
        programs.append(hop(me, where, SizedPart(), settings, training=_train(case, training, me, gaps)))
    stretches = _run(case, programs)
    bounds = where.gap_bound(settings.max_gap, None if settings.backup else 1 + (settings.staleness or 0))
    return Outcome(stretches, int(gaps.seen.max()), int(bounds.max()), bool((gaps.seen <= bounds).all()))


def run_gossip(case: Case, name: str) -> Outcome:
    """AD-PSGD: everyone averages with one neighbour at random after every step."""
    where, gaps = case.graph(name), Gaps(case.ranks)
    programs = []
    for me in range(case.ranks):
        training = GossipTraining(me, limit=NEVER, grace=NEVER / 10)
        programs.append(gossip(me, where, SizedPart(), training=_train(case, training, me, gaps)))
    return Outcome(_run(case, programs), int(gaps.seen.max()))


def run_all_reduce(case: Case) -> Outcome:
    """Bulk-synchronous: after every step everyone waits for everyone. A ring, which crosses between hosts least."""
    return Outcome(_run(case, [Program({}, training=_train_together(case, me)) for me in range(case.ranks)]))


def _train_together(case: Case, me: int) -> Process[Stretch]:
    everyone, metrics = range(case.ranks), Metrics()
    marks: list[tuple[float, Metrics]] = []
    for number in range(case.steps):
        yield case.step(me, number)
        began: float = yield Now()
        yield Join(everyone, number, sum_sizes(RING, case.ranks, me, case.model))
        now: float = yield Now()
        metrics.iterations += 1
        metrics.waited_seconds += now - began
        if number + 1 in (case.steps // 2, case.steps):
            marks.append((now, copy(metrics)))
    return Stretch.between(*marks)


# -- on the paper's cluster --------------------------------------------------------------------------------------------

GRAPHS = ("ring", "ring-based", "double-ring")
NOBODY, AT_RANDOM, ONE = "nobody", "6×, at random", "one, 4×"
ALL_REDUCE, AD_PSGD, STANDARD = "all-reduce", "AD-PSGD", "standard"
SETTINGS = {
    STANDARD: Settings(MAX_GAP),
    "backup 1": Settings(MAX_GAP, backup=1),
    f"staleness {STALENESS}": Settings(MAX_GAP, staleness=STALENESS),
    "backup 1, skip 2": Settings(MAX_GAP, backup=1, skip=Skip(2, 2)),
    "backup 1, skip 10": Settings(MAX_GAP, backup=1, skip=Skip(2, 10)),
}


def scenarios(ranks: int) -> dict[str, Delay]:
    """Who is slow. At random: one rank per iteration on average."""
    return {
        NOBODY: Delay(()),
        AT_RANDOM: Delay((RandomSlowdown(6),)),
        ONE: Delay((SlowShare(1 / ranks, 4),)),
    }


def make_case(ranks: int, steps: int, scenario: str, step_seconds: float = STEP, jitter: float = JITTER) -> Case:
    return Case(ranks, steps, step_seconds, Pace(LogNormal(step_seconds, jitter), scenarios(ranks)[scenario]))


def hop_rows(steps: int, most_ranks: int, step_seconds: float = STEP, jitter: float = JITTER) -> Iterator[Row]:
    """The paper's sixteen ranks, then as many as there may be."""
    seen: dict[tuple[str, str, str], float] = {}
    for scenario in scenarios(RANKS):
        case = make_case(RANKS, steps, scenario, step_seconds, jitter)
        for place, name, system in _systems():
            row = {"scenario": scenario, "graph": place, "system": name, **_figures(case, system)}
            seen[scenario, place, name] = rate = row["rate"]
            standard = seen.get((scenario, place, STANDARD))
            yield {
                **row,
                "kept_percent": None if scenario == NOBODY else 100 * rate / seen[NOBODY, place, name],
                "speedup": None if standard is None else rate / standard,
            }
    case = make_case(min(MANY, most_ranks), min(MANY_STEPS, steps), AT_RANDOM, step_seconds, jitter)
    many = _figures(case, lambda case: run_hop(case, "ring-based", SETTINGS["backup 1"]))
    yield {"scenario": AT_RANDOM, "graph": "ring-based", "system": "backup 1", **many}


def _systems() -> Iterator[tuple[str, str, Callable[[Case], Outcome]]]:
    """Graph, name, and how to run it."""
    yield "", ALL_REDUCE, run_all_reduce
    for place in GRAPHS:
        for name, settings in SETTINGS.items():
            yield place, name, partial(run_hop, name=place, settings=settings)
        yield place, AD_PSGD, partial(run_gossip, name=place)


def _figures(case: Case, system: Callable[[Case], Outcome]) -> Row:
    began = time.perf_counter()
    outcome = system(case)
    seconds, is_bounded = time.perf_counter() - began, outcome.bound is not None
    return {
        **{"ranks": case.ranks, "step_s": case.step_seconds, "rate": outcome.rate},
        **{"gap": outcome.gap, "bound": outcome.bound},
        "within": ("yes" if outcome.is_within else "NO") if is_bounded else None,
        "waited_percent": 100 * outcome.share_of_time("waited_seconds"),
        "tokens_percent": 100 * outcome.share_of_time("waited_for_tokens") if is_bounded else None,
        "late_percent": 100 * outcome.share_of("late", "used") if is_bounded else None,
        "skipped_percent": 100 * outcome.share_of("skipped", "iterations") if is_bounded else None,
        "seconds": seconds,
    }


# -- drawn -------------------------------------------------------------------------------------------------------------

_COLOURS = dict(
    zip((*SETTINGS, AD_PSGD), ("#808080", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7"), strict=True)
)
_WIDTH = 0.8 / len(_COLOURS)  # of a bar


def draw_hop(rows: Sequence[Row], path: Path) -> None:
    """Iterations per second by graph and system, a panel for each way to be slow; dashes: the same with nobody slow."""
    rates = {(row["scenario"], row["graph"], row["system"]): row["rate"] for row in rows if row["ranks"] == RANKS}
    figure = new_figure(10, 4)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, scenario in zip(axes, (AT_RANDOM, ONE), strict=True):
        for number, (name, colour) in enumerate(_COLOURS.items()):
            left = [index + (number - (len(_COLOURS) - 1) / 2) * _WIDTH for index in range(len(GRAPHS))]
            axis.bar(left, [rates[scenario, where, name] for where in GRAPHS], _WIDTH, color=colour, label=name)
            even = [rates[NOBODY, where, name] for where in GRAPHS]
            axis.scatter(left, even, marker="_", color="black", s=60, label="nobody slow" if number == 0 else None)
        axis.axhline(rates[scenario, "", ALL_REDUCE], color="black", linestyle=":", label=ALL_REDUCE)
        axis.set_xticks(range(len(GRAPHS)), GRAPHS)
        axis.set_title(f"slow: {scenario}", fontsize=10)
    axes[0].set_ylabel("iterations per second")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    save(figure, path)
