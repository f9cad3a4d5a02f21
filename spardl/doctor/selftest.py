"""A few reduces on these very ranks: is the result right, and is it in proportion to what the memory can do?"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spardl import schedule
from spardl.agreement import by_value, gather_json
from spardl.allreduce import SparseAllreduce
from spardl.doctor.verdict import ERROR, OK, Verdict
from spardl.runtime.group import Group
from spardl.runtime.library import MPI

_SIZE, _KEPT, _STEPS = 5000, 50, 3
_MOST_TEAMS = 100  # more would need integers that float64 does not have
_TIMED_SIZE = 2**20
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rank found. ``lost`` counts elements that do not add up, which is the same on all ranks."""

    lost: int
    digest: str  # of all results
    reduce_seconds: float
    copy_seconds: float


def run(comm: MPI.Intracomm, group: Group, timeout: float) -> Outcome:
    """All ranks together."""
    results = hashlib.blake2b(digest_size=6)
    lost = 0
    few = [teams for teams in schedule.team_counts(group.size) if teams <= _MOST_TEAMS]
    for teams in few[:2]:  # one, and the fewest that can be
        lost += _lost(comm, group, teams, timeout, results)
    return Outcome(lost, results.hexdigest(), *_times(comm, group, timeout))


def _lost(comm: MPI.Intracomm, group: Group, teams: int, timeout: float, results: hashlib.blake2b) -> int:
    """Small integers that the teams' shares divide: sums are exact, so all that was handed in has to come out."""
    sparse = SparseAllreduce(comm, _SIZE, k=_KEPT, teams=teams, timeout=timeout)
    dense = SparseAllreduce(comm, _SIZE, k=_SIZE, algorithm="dense_ring", timeout=timeout)
    rng = np.random.default_rng(group.me)
    owed = np.zeros(_SIZE)
    for _ in range(_STEPS):
        grad = rng.integers(-9, 10, _SIZE) * float(teams**_STEPS)
        owed += dense.reduce(grad).to_dense()
        result = sparse.reduce(grad)
        results.update(result.indices.tobytes() + result.values.tobytes())
        owed -= result.to_dense()
    return int(np.count_nonzero(owed - dense.reduce(np.ascontiguousarray(sparse.residual)).to_dense()))


def _times(comm: MPI.Intracomm, group: Group, timeout: float) -> tuple[float, float]:
    grad = np.random.default_rng(group.me).standard_normal(_TIMED_SIZE, dtype=np.float32)
    copy = np.empty_like(grad)
    reducer = SparseAllreduce(comm, _TIMED_SIZE, density=0.01, timeout=timeout)

    def together(job: Callable[[], object]) -> float:
        job()
        taken = []
        for _ in range(_REPEATS):
            gather_json(group, None, timeout, "self-test")
            started = time.perf_counter()
            job()
            taken.append(time.perf_counter() - started)
        return float(np.median(taken))

    return together(lambda: reducer.reduce(grad)), together(lambda: np.copyto(copy, grad))


def law(outcomes: list[Outcome]) -> Verdict:
    lost = max(outcome.lost for outcome in outcomes)
    if lost:
        what = f"{lost} elements of the sum are wrong"
        return Verdict("law", ERROR, what, "Do not train on these ranks; try another MPI or transport, and tell us")
    return Verdict("law", OK, "results and residuals add up to what was handed in, exactly")


def consensus(outcomes: list[Outcome]) -> Verdict:
    digests = [outcome.digest for outcome in outcomes]
    if len(set(digests)) > 1:
        what = f"the ranks' results differ: {by_value(digests)}"
        return Verdict("consensus", ERROR, what, "Do not train on these ranks; test their memory, and tell us")
    return Verdict("consensus", OK, "all ranks hold the same bits")


def speed(outcomes: list[Outcome]) -> Verdict:
    """For people to compare: what is slow depends on network and ranks."""
    reduce, copy = (
        max(seconds) for seconds in zip(*((o.reduce_seconds, o.copy_seconds) for o in outcomes), strict=True)
    )
    what = f"reducing {_TIMED_SIZE:,} floats to 1 % takes {1e3 * reduce:.1f} ms, {reduce / copy:.0f} × copying them"
    return Verdict("speed", OK, what)
