"""The whole examination of a job, in order: who is here, what they have, whether it works."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from spardl import revision
from spardl.agreement import gather_json
from spardl.doctor import clocks, cores, devices, launching, look, memory, selftest, software
from spardl.doctor.facts import Facts, by_host
from spardl.doctor.sockets import tcp_interfaces
from spardl.doctor.verdict import ERROR, Verdict, is_fit
from spardl.errors import PeerTimeout
from spardl.runtime.group import Group, resolve
from spardl.runtime.library import MPI
from spardl.runtime.mpi import Task, shared_channel

_Judge = Callable[[Sequence[Facts]], Verdict]
_FIRST: tuple[_Judge, ...] = (launching.ranks, launching.mpiexec, software.mpi)
_THEN: tuple[_Judge, ...] = (
    software.threads,
    software.code,
    software.packages,
    software.kernels,
    cores.binding,
    cores.load,
    cores.spinning,
    memory.shared_memory,
    devices.gpu,
)


@dataclass(slots=True)
class Report:
    """The same on all ranks, unless messages do not arrive."""

    verdicts: list[Verdict] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    stuck: bool = False  # ranks did not answer: MPI may not end by itself


def examine(comm: MPI.Intracomm, shm_free: int, timeout: float) -> Report:
    """All ranks together."""
    report = Report()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first judge says it better
            group = resolve(comm, timeout)
        place = f"{MPI.Get_processor_name()}:{look.folder_of('spardl')}"
        told = gather_json(group, [revision.describe(), place], timeout, "doctor")
        codes, places = ([str(item[i]) for item in told] for i in (0, 1))
        if len(set(codes)) > 1:
            report.verdicts.append(software.mixed_code(codes, places))
            return report
        mine = asdict(look.look(comm, shm_free))
        report.facts = [Facts(**facts) for facts in gather_json(group, mine, timeout, "doctor")]
        report.verdicts += [judge(report.facts) for judge in _FIRST]
        if not is_fit(report.verdicts):  # these are not the ranks that were meant: what they can do tells nothing
            return report
        report.verdicts += [judge(report.facts) for judge in _THEN]
        if is_fit(report.verdicts):
            report.verdicts += _try_out(comm, group, report.facts, timeout)
    except PeerTimeout as error:
        report.stuck = True
        todo = "Can the hosts reach each other? See docs/launch-errors.md on choosing the network"
        report.verdicts.append(Verdict("messages", ERROR, str(error), todo))
    return report


def _try_out(comm: MPI.Intracomm, group: Group, everyone: Sequence[Facts], timeout: float) -> list[Verdict]:
    hosts = {host: ranks[0].rank for host, ranks in by_host(everyone).items()}
    peers = [rank for rank in hosts.values() if rank != 0]
    task = Task(shared_channel(group), clocks.offsets(group.me, peers), timeout, "comparing clocks")
    measured = gather_json(group, list(task.wait().values()), timeout, "doctor")[0]
    names = [host for host, rank in hosts.items() if rank != 0]
    outcome = selftest.run(comm, group, timeout)
    tried = gather_json(group, [asdict(outcome), tcp_interfaces()], timeout, "doctor")
    outcomes = [selftest.Outcome(**told) for told, _ in tried]
    return [
        devices.network(everyone, [interfaces for _, interfaces in tried]),
        clocks.skew(dict(zip(names, measured, strict=True))),
        selftest.law(outcomes),
        selftest.consensus(outcomes),
        selftest.speed(outcomes),
    ]
