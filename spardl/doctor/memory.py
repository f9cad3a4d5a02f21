"""Shared memory, through which the ranks of a host talk."""

from collections.abc import Sequence

from spardl.doctor.facts import Facts, by_host, count
from spardl.doctor.verdict import ERROR, OK, WARNING, Verdict

MIB = 2**20
# Bytes per rank: below the first, MPI dies when it starts; the second is what it takes if it can. docs/launch-errors.md
# shows how they were found; where nothing is known, what Docker gives to a container has to do for four ranks.
_NEEDS = {"MPICH": (1.02 * MIB, 5.2 * MIB), "Open MPI": (0.0, 16 * MIB)}
_UNKNOWN = (0.0, 16 * MIB)

ENLARGE = "Enlarge /dev/shm: `docker run --shm-size=1g`, or as root `mount -o remount,size=1g /dev/shm`"


def shared_memory(everyone: Sequence[Facts]) -> Verdict:
    for host, ranks in by_host(everyone).items():
        # Those who looked later found less, since others had begun.
        verdict = judge_free(ranks[0].mpi_family, len(ranks), max(facts.shm_free for facts in ranks), f" on {host}")
        if verdict.level != OK:
            return verdict
    least = min(facts.shm_free for facts in everyone)
    return Verdict("/dev/shm", OK, "not there" if least < 0 else f"{least / MIB:,.0f} MiB free")


def judge_free(family: str, ranks: int, free: int, where: str = "") -> Verdict:
    """Before MPI starts, a rank has only this to go by."""
    least, enough = _NEEDS.get(family, _UNKNOWN)
    asked = f"{count(ranks, 'rank')} of {family} ask for {ranks * enough / MIB:,.0f}"
    what = f"{free / MIB:,.1f} MiB free{where}, where {asked}"
    if free < 0 or free >= ranks * enough:
        return Verdict("/dev/shm", OK, what)
    if free >= ranks * least:
        return Verdict("/dev/shm", WARNING, what, ENLARGE)
    return Verdict("/dev/shm", ERROR, f"{what}: MPI dies of a bus error when it starts", ENLARGE)
