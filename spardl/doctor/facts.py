"""What one rank knows of itself and its host. Judges take the facts of all ranks, in the order of ranks."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """Goes through JSON, so that a ticket can have it."""

    rank: int
    size: int
    host: str
    # software
    python: str
    packages: dict[str, str]  # versions, of those that are installed
    paths: dict[str, str]  # where they are
    mpi: str  # name and version
    mpi_family: str  # as mpi4py calls it
    mpi_path: str
    mpi_thread_level: str
    code: str  # version and digest of spardl's Python files
    extension: str  # digest of the compiled kernels
    backend: str  # of the kernels; empty if none can be loaded
    backend_error: str
    simd: str
    # launch
    launched_by: str
    launched_ranks: int  # 0: no launcher
    launched_protocol: str
    own_mpiexec: str  # installed with the MPI library
    found_mpiexec: str  # on the PATH
    found_family: str  # of MPI, that this one belongs to; looked up by rank 0 alone
    # host
    cores: list[int]  # that this rank may use
    host_cores: int
    threads: int  # OMP_NUM_THREADS; 0 if that is not set
    shm_free: int  # bytes in /dev/shm before MPI started; -1 if there is none
    gpus: int
    mpi_takes_gpu_memory: bool
    fabrics: list[str]  # devices in /sys/class/infiniband
    transports: list[str]  # libraries that MPI loaded
    settings: dict[str, str]  # environment variables of MPI, its transports and spardl


def by_host(everyone: Sequence[Facts]) -> dict[str, list[Facts]]:
    """The ranks of each host."""
    hosts: defaultdict[str, list[Facts]] = defaultdict(list)
    for facts in everyone:
        hosts[facts.host].append(facts)
    return dict(hosts)


def count(number: int, noun: str) -> str:
    """E.g. ``3 ranks``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
