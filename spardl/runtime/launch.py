"""What the launcher says of this job, by its environment variables, and whether MPI understood the same.

An MPI that is started by a launcher whose protocol it does not speak gives up, or takes every process for a job of its
own: then N copies of the training run, each alone, and nothing else tells.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spardl.runtime.library import MPI

PMI, PMIX, NOTHING = "PMI", "PMIx", "nothing"
OPEN_MPI = "Open MPI"


class Launch(NamedTuple):
    """A launcher started ``ranks`` processes, of which this is ``rank``, and offers MPI to start by a protocol."""

    by: str
    ranks: int
    rank: int
    protocol: str


class _Signs(NamedTuple):
    """Environment variables: where all are there, this is the launcher. The first two tell ranks and rank."""

    by: str
    ranks: str
    rank: str
    protocol: str | None  # None: depends
    also: str = ""


TORCHRUN = "torchrun"

# Innermost first: a task of srun may have called mpiexec. SLURM_NTASKS is not a sign, batch scripts have it too.
_LAUNCHERS = (
    _Signs(TORCHRUN, "WORLD_SIZE", "RANK", NOTHING, also="TORCHELASTIC_RESTART_COUNT"),
    _Signs("Open MPI's mpiexec", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", PMIX),
    _Signs("MPICH's mpiexec", "PMI_SIZE", "PMI_RANK", PMI, also="MPI_LOCALNRANKS"),
    _Signs("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", None),
    _Signs("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", None),
    _Signs("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", None),
    _Signs("a PMI launcher", "PMI_SIZE", "PMI_RANK", PMI),
)


def told(environ: Mapping[str, str]) -> Launch | None:
    """What the launcher says; None if there is no sign of one."""
    for signs in _LAUNCHERS:
        wanted = filter(None, (signs.ranks, signs.rank, signs.also))
        if all(environ.get(name, "").isdecimal() for name in wanted):
            protocol = signs.protocol or _protocol(environ)
            return Launch(signs.by, int(environ[signs.ranks]), int(environ[signs.rank]), protocol)
    return None


def _protocol(environ: Mapping[str, str]) -> str:
    if "PMIX_NAMESPACE" in environ:
        return PMIX
    return PMI if "PMI_FD" in environ or "PMI_RANK" in environ else NOTHING


def is_foreign(launch: Launch, family: str) -> bool:
    """Whether MPI, of this family, is not likely to understand its launcher."""
    return launch.ranks > 1 and launch.protocol != (PMIX if family == OPEN_MPI else PMI)


def cure(launch: Launch, family: str, mpiexec: str) -> str:
    """What to type instead. ``mpiexec`` is that of the MPI in use."""
    own = f"{family}'s own mpiexec{f', {mpiexec}' if mpiexec else ''}"
    if launch.by == TORCHRUN:
        return f"Start it with {own}: `mpiexec -n {launch.ranks} python script.py`"
    if launch.by == "srun":
        kind = "pmix" if family == OPEN_MPI else "pmi2"
        srun = f"`srun --mpi={kind}` (`srun --mpi=list` tells what there is)"
        return f"Start it with {srun}, or in the allocation with {own}"
    return f"Start it with {own}"


def alone(launch: Launch, family: str) -> str:
    """For a process that is the only rank of its job though others were started with it."""
    return (
        f"{launch.by} started {launch.ranks} processes, but to MPI (mpi4py uses {family}) each is alone: "
        f"{launch.ranks} trainings would run instead of one"
    )


def require_company() -> None:
    """Called where a communicator is first used. torchrun is no launcher of MPI's; of others one process warns."""
    launch = told(os.environ) if MPI.COMM_WORLD.size == 1 else None
    if launch is None or launch.ranks == 1:
        return
    family = MPI.get_vendor()[0]
    what = f"{alone(launch, family)}. {cure(launch, family, own_mpiexec())}."
    if launch.by == TORCHRUN:
        raise RuntimeError(what)
    if launch.rank == 0:
        warnings.warn(f"{what} `spardl doctor`, launched alike, tells more.", RuntimeWarning, stacklevel=4)


def library_path() -> str:
    """The MPI library in this process; empty where that cannot be known."""
    try:
        files = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    except OSError:
        return ""
    return str(min((file for file in files if file.name.startswith(("libmpi.", "libmpi_", "libmpich"))), default=""))


def own_mpiexec() -> str:
    """The mpiexec installed with that library; empty if it is not where it usually is."""
    library = library_path()
    mpiexec = Path(library).parent.parent / "bin" / "mpiexec"
    return str(mpiexec) if library and mpiexec.exists() else ""
