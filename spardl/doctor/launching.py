"""Is this one job, started by the launcher of the MPI it uses?"""

from collections.abc import Sequence

from spardl.doctor.facts import Facts, by_host, count
from spardl.doctor.verdict import ADVICE, ERROR, OK, WARNING, Verdict
from spardl.runtime import launch

_LISTED_HOSTS = 8


def ranks(everyone: Sequence[Facts]) -> Verdict:
    """As many ranks as were started, and where they are."""
    first = everyone[0]
    if first.size == 1 and first.launched_ranks > 1:
        launched = launch.Launch(first.launched_by, first.launched_ranks, 0, first.launched_protocol)
        cure = launch.cure(launched, first.mpi_family, first.own_mpiexec)
        return Verdict("launch", ERROR, launch.alone(launched, first.mpi), cure)
    hosts = by_host(everyone)
    where = f"{count(first.size, 'rank')} on {count(len(hosts), 'host')}"
    if 1 < len(hosts) <= _LISTED_HOSTS:
        where += f" ({', '.join(f'{host}: {len(ranks)}' for host, ranks in hosts.items())})"
    elif len(hosts) > 1:
        fewest, most = (f(map(len, hosts.values())) for f in (min, max))
        where += f" ({fewest} to {most} on each)"
    if first.size == 1:
        return Verdict(
            "launch", ADVICE, "one rank", "To check a job, launch this as you launch training, e.g. `mpirun -n 4`"
        )
    return Verdict("launch", OK, f"{where}, started by {first.launched_by or 'an unknown launcher'}")


def mpiexec(everyone: Sequence[Facts]) -> Verdict:
    """Whether the mpiexec that a user would type is the right one."""
    first = everyone[0]
    if not first.found_mpiexec:
        own = first.own_mpiexec or f"{first.mpi}'s bin folder"
        return Verdict("mpiexec", ADVICE, "there is none on the PATH", f"Use srun, or {own}")
    what = f"{first.found_mpiexec}{f' of {first.found_family}' if first.found_family else ''}"
    if first.found_family and not _akin(first.found_family, first.mpi_family):
        todo = first.own_mpiexec or f"that of {first.mpi}"
        level = WARNING if first.size == 1 else ADVICE  # these ranks were started by another one
        return Verdict("mpiexec", level, f"{what}, but mpi4py uses {first.mpi}", f"Launch with {todo}")
    return Verdict("mpiexec", OK, what)


def _akin(a: str, b: str) -> bool:
    """Open MPI's launcher starts Open MPI; those of MPICH and what derives from it start each other."""
    return (a == launch.OPEN_MPI) == (b == launch.OPEN_MPI)
