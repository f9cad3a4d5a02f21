"""Who computes on which cores."""

from collections.abc import Sequence

from spardl.doctor.facts import Facts, by_host, count
from spardl.doctor.verdict import ADVICE, OK, WARNING, Verdict
from spardl.runtime.launch import OPEN_MPI

_YIELD = "OMPI_MCA_mpi_yield_when_idle"


def binding(everyone: Sequence[Facts]) -> Verdict:
    """Ranks that a launcher has bound to the same core, while others are idle, are the worst of all."""
    for host, ranks in by_host(everyone).items():
        usable = _usable(ranks)
        if len(ranks) > len(usable) and len(usable) < ranks[0].host_cores:
            which = ", ".join(map(str, sorted(usable)))
            what = f"{count(len(ranks), 'rank')} of {host} may use no cores but {which} of its {ranks[0].host_cores}"
            return Verdict("binding", WARNING, what, f"{_bind(everyone[0])}, or ask for more cores")
    if any(len(facts.cores) < facts.host_cores for facts in everyone):
        fewest, most = (f(len(facts.cores) for facts in everyone) for f in (min, max))
        each = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        return Verdict("binding", OK, f"each rank may use {each} of {everyone[0].host_cores} cores")
    if any(len(ranks) > 1 for ranks in by_host(everyone).values()) and _all_have_a_core(everyone):
        what = f"none: every rank may use all {everyone[0].host_cores} cores of its host"
        return Verdict("binding", ADVICE, what, _bind(everyone[0]))
    return Verdict("binding", OK, "none")


def _bind(facts: Facts) -> str:
    if facts.launched_by == "srun":
        return "Bind ranks to cores: `srun --cpus-per-task=N --cpu-bind=cores`"
    return f"Bind ranks to cores: `mpiexec {'--' if facts.mpi_family == OPEN_MPI else '-'}bind-to core`"


def load(everyone: Sequence[Facts]) -> Verdict:
    """Threads of all ranks of a host, over the cores they may use. torch takes all that it may where nobody says."""
    for host, ranks in by_host(everyone).items():
        cores = len(_usable(ranks))
        wanted = sum(facts.threads or (len(facts.cores) if "torch" in facts.packages else 1) for facts in ranks)
        each = max(1, cores // len(ranks))
        if wanted > cores and any(facts.threads != 1 for facts in ranks):
            unset = all(facts.threads == 0 for facts in ranks)
            why = (
                "OMP_NUM_THREADS is not set, so torch takes all cores on every rank"
                if unset
                else f"OMP_NUM_THREADS={ranks[0].threads}"
            )
            what = f"{wanted} threads of {count(len(ranks), 'rank')} on {count(cores, 'core')} of {host} ({why})"
            return Verdict("load", WARNING, what, f"`export OMP_NUM_THREADS={each}`")
        if len(ranks) > cores:
            what = f"{count(len(ranks), 'rank')} share {count(cores, 'core')} of {host}"
            return Verdict("load", WARNING, what, "Fine to try things; for speed start at most a rank per core")
    most = max(len(ranks) for ranks in by_host(everyone).values())
    return Verdict("load", OK, f"at most {count(most, 'rank')} on a host, with cores enough")


def spinning(everyone: Sequence[Facts]) -> Verdict:
    """spardl's own waits let others go first. The library's (dense_mpi, barriers) spin, unless they are told not to."""
    crowded = [host for host, ranks in by_host(everyone).items() if len(ranks) > len(_usable(ranks))]
    first = everyone[0]
    if not crowded:
        return Verdict("spinning", OK, "no rank waits on a core that another one needs")
    if first.settings.get(_YIELD, "0") not in ("0", "false"):
        return Verdict("spinning", OK, f"{_YIELD}: {first.mpi} lets other ranks go first while it waits")
    what = f"{first.mpi}'s own waits, as in dense_mpi, take cores of {crowded[0]} from ranks that compute"
    if first.mpi_family == OPEN_MPI:
        return Verdict("spinning", WARNING, what, f"`export {_YIELD}=1`")
    return Verdict(
        "spinning", ADVICE, what, "Start fewer ranks on a host; spardl's own waits, as in dense_ring, do not"
    )


def _all_have_a_core(everyone: Sequence[Facts]) -> bool:
    return all(len(ranks) <= len(_usable(ranks)) for ranks in by_host(everyone).values())


def _usable(ranks: Sequence[Facts]) -> set[int]:
    return {core for facts in ranks for core in facts.cores}
