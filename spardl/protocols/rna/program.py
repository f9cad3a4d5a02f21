"""All of RNA's processes of one rank."""

from collections.abc import Mapping, Sequence
from typing import Any

from spardl.effects import Process
from spardl.protocols.liveness import services
from spardl.protocols.results import RESULTS, results
from spardl.protocols.rna.hierarchy import (
    AVERAGER,
    ENDING,
    REPORTER,
    SERVER,
    WATCH,
    averager,
    ending,
    lead,
    reporter,
    watch,
)
from spardl.protocols.rna.notes import LEAD, SCHEDULER, WORKER
from spardl.protocols.rna.paces import Paces
from spardl.protocols.rna.parts import Part
from spardl.protocols.rna.policies import Policy
from spardl.protocols.rna.scheduler import Scheduler
from spardl.protocols.rna.waiting import Waiting
from spardl.protocols.rna.worker import Worker
from spardl.runtime.process import Program


def rna(
    me: int,
    groups: Sequence[Sequence[int]],
    part: Part,
    waiting: Waiting,
    policy: Policy,
    *,
    patience: float,
    limit: float,
    terms: str = "",
    hierarchical: bool = False,
    regroups: bool = False,
    training: Process[Any] | None = None,
) -> Program:
    """``groups`` have every rank once; a group's first rank leads it.

    ``limit``: seconds after which somebody who hears nothing of the others takes them for dead. ``terms``: on which
    rounds are applied until training tells others. ``hierarchical``: groups' weights are averaged, and paces told.
    ``regroups``: other groups are called for when paces change.
    """
    group = next(group for group in groups if me in group)
    processes: dict[str, Process[Any]] = {WORKER: Worker(me, group[0], waiting, part).run()}
    serving = services(me, sum(map(len, groups))) | {RESULTS: results(part.write)}
    if me == group[0]:
        processes[SCHEDULER] = Scheduler(group, policy, patience, terms).run()
    if hierarchical:
        more, served = _between(me, groups, part, limit, regroups)
        processes |= more
        serving |= served
    return Program(processes, serving, training)


def _between(
    me: int, groups: Sequence[Sequence[int]], part: Part, limit: float, regroups: bool
) -> tuple[Mapping[str, Process[Any]], Mapping[str, Process[Any]]]:
    ranks = sum(map(len, groups))
    processes: dict[str, Process[Any]] = {ENDING: ending(me, ranks, groups)}
    services: dict[str, Process[Any]] = {REPORTER: reporter(me, limit / 8)}
    if any(me == group[0] for group in groups):
        processes[LEAD] = lead(me, part.size, part.dtype)
    if me == SERVER:
        services[AVERAGER] = averager(groups, part.size, part.dtype)
        services[WATCH] = watch(ranks, Paces(groups) if regroups else None, limit / 8)
    return processes, services
