"""Starts MPI. That may end the process at once, so what may be wrong is told before."""

import faulthandler
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spardl.doctor import memory
from spardl.doctor.verdict import ERROR

if TYPE_CHECKING:
    from mpi4py import MPI

    from spardl.runtime.launch import Launch

# How many ranks are on this host, and which of them this is.
_LOCAL = (
    ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"),
)


def start_mpi(tell: Callable[[str], object], timeout: float) -> "tuple[MPI.Intracomm, int]":
    """All ranks, and the bytes that were free in /dev/shm before they started."""
    free = free_shared_memory()
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=True)
    from spardl.runtime import launch
    from spardl.runtime.library import MPI

    if not MPI.Is_initialized():
        ranks, is_first = on_this_host(os.environ)
        if is_first:
            for line in forebodings(launch.told(os.environ), MPI.get_vendor()[0], launch.own_mpiexec(), ranks, free):
                tell(line)
        faulthandler.dump_traceback_later(timeout, exit=True)  # works even if MPI never returns
        MPI.Init_thread()
        faulthandler.cancel_dump_traceback_later()
    return MPI.COMM_WORLD, free


def forebodings(launched: "Launch | None", family: str, mpiexec: str, ranks: int, free: int) -> list[str]:
    """What may go wrong; ``ranks`` are those of this host, ``free`` is its shared memory."""
    from spardl.runtime import launch

    told = []
    speaks = launched is not None and launched.rank == 0 and launched.protocol != launch.NOTHING  # else MPI will start
    if launched is not None and speaks and launch.is_foreign(launched, family):
        offered = f"{launched.by} offers {launched.protocol} to start by"
        cure = launch.cure(launched, family, mpiexec)
        told.append(f"{offered}, and mpi4py uses {family}, which may not understand it. {cure}.")
    shm = memory.judge_free(family, ranks, free)
    if shm.level == ERROR:
        told.append(f"{shm.item}: {shm.what}. {shm.todo}.")
    return told


def free_shared_memory(folder: str = "/dev/shm") -> int:
    """In bytes; -1 if there is no such folder."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return -1


def on_this_host(environ: Mapping[str, str]) -> tuple[int, bool]:
    """How many ranks the launcher put here, and whether this is the first of them; without a launcher, one."""
    for ranks, rank in _LOCAL:
        if ranks in environ:
            first = environ[ranks].split("(")[0].split(",")[0]  # SLURM has "4(x2),3": 4 on two nodes, 3 on one
            return int(first), environ.get(rank, "0") == "0"
    return 1, True
