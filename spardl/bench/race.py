"""One gradient size and density: all contenders take turns, and each is checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from spardl.bench import memory, ranks, timing
from spardl.bench.check import check
from spardl.bench.contenders import BASELINE, Contender
from spardl.bench.progress import Tell
from spardl.bench.rows import timing_row
from spardl.bench.runner import Baseline, Gradient, Options, Runner
from spardl.bench.table import Row
from spardl.bench.timing import Candidate
from spardl.runtime.library import MPI


@dataclass(frozen=True, slots=True)
class Plan:
    """How often, how long, and what else to look at."""

    warmup: int = 3
    repeats: int = 10
    max_seconds: float = 20.0  # of a contender; on a slow network a dense one takes seconds each time
    baseline: bool = True
    memory: bool = False
    options: Options = field(default_factory=Options)


def compete(
    comm: MPI.Intracomm,
    contenders: Sequence[Contender],
    gradients: Sequence[Gradient],
    density: float,
    plan: Plan,
    tell: Tell,
) -> list[Row]:
    """A row for each, the same on all ranks; the baseline's comes first."""
    size = len(gradients[0])
    what = f"n = {size:,}, density {density:g}"
    runners: list[Runner] = []
    rows: list[Row] = []
    for number, contender in enumerate(contenders):
        runner, row = _enter(comm, contender, gradients, density, plan)
        runners.append(runner)
        rows.append({"algorithm": contender.algorithm, "teams": contender.teams, **row})
        tell(f"{what}, building", number + 1, len(contenders))
    candidates = [Candidate(runner.run, prepare=runner.digest) for runner in runners]
    if plan.baseline:
        candidates.insert(0, Candidate(Baseline(comm, gradients).run))
        rows.insert(0, {"algorithm": BASELINE})
    seconds = timing.interleaved(
        candidates,
        plan.repeats,
        plan.warmup,
        max_seconds=plan.max_seconds,
        agree=partial(ranks.decide, comm),
        before_each=partial(ranks.barrier, comm),
        tell=partial(tell, f"{what}, turns"),
    )
    for row, record in zip(rows, seconds, strict=True):
        row |= timing_row(ranks.gather(comm, np.array(record)), gradients[0].nbytes)
        if plan.baseline:
            row["ratio"] = row["time_ms"] / rows[0]["time_ms"]
    for number, (row, runner) in enumerate(zip(rows[plan.baseline :], runners, strict=True)):
        row |= _traffic(comm, runner, gradients[0].nbytes) | check(comm, runner, gradients[0])._asdict()
        tell(f"{what}, checking", number + 1, len(runners))
    return [{"size": size, "density": density, "k": runners[0].reducer.k, **row} for row in rows]


def _enter(
    comm: MPI.Intracomm, contender: Contender, gradients: Sequence[Gradient], density: float, plan: Plan
) -> tuple[Runner, Row]:
    build = partial(Runner, comm, contender, density, gradients, plan.options)
    return memory.watched(comm, build, gradients[0].nbytes) if plan.memory else (build(), {})


def _traffic(comm: MPI.Intracomm, runner: Runner, dense_bytes: int) -> Row:
    """The busiest rank's, in the last reduce."""
    traffic = runner.reducer.traffic
    busiest = ranks.largest(comm, traffic.rounds, traffic.messages_sent, traffic.bytes_sent)
    rounds, messages, sent = map(int, busiest)
    share = sent / max(least_sent(comm.size, dense_bytes), 1)
    return {"rounds": rounds, "messages": messages, "bytes_sent": sent, "bytes_per_dense": share}


def least_sent(ranks: int, dense_bytes: int) -> int:
    """Bytes that a rank sends at least in a dense all-reduce."""
    return 2 * (ranks - 1) * dense_bytes // ranks
