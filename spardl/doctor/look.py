"""Gathers the facts of this rank. Nothing here judges, and nothing is imported that training would not import."""

import importlib.util
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from spardl import kernels, revision
from spardl.doctor.facts import Facts
from spardl.runtime import gpu_memory, launch
from spardl.runtime.library import MPI

PACKAGES = ("spardl", "mpi4py", "numpy", "numba", "torch")
_SETTINGS = (
    "SPARDL_",
    "MPIR_CVAR_",
    "MPICH_",
    "OMPI_MCA_",
    "PRTE_MCA_",
    "I_MPI_",
    "UCX_",
    "FI_",
    "OMP_",
    "CUDA_VISIBLE",
)
_TRANSPORTS = ("libucp", "libfabric", "libpsm2", "libportals", "libcxi", "mca_btl_tcp", "mca_pml_ucx")
_THREAD_LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
_VERSION_TAKES_AT_MOST = 10.0  # seconds


def look(comm: MPI.Intracomm, shm_free: int) -> Facts:
    """``shm_free`` was looked up before MPI started and took its part."""
    backend, backend_error, simd = _kernels()
    family, version = MPI.get_vendor()
    launched = launch.told(os.environ)
    found = shutil.which("mpiexec") or ""
    paths = {name: folder for name in PACKAGES if (folder := folder_of(name))}
    return Facts(
        rank=comm.rank,
        size=comm.size,
        host=MPI.Get_processor_name(),
        python=platform.python_version(),
        packages={name: _version(name) for name in paths},
        paths=paths,
        mpi=f"{family} {'.'.join(map(str, version))}",
        mpi_family=family,
        mpi_path=launch.library_path(),
        mpi_thread_level=_THREAD_LEVELS[MPI.Query_thread() - MPI.THREAD_SINGLE],
        code=revision.describe(),
        extension=revision.extension_digest(),
        backend=backend,
        backend_error=backend_error,
        simd=simd,
        launched_by=launched.by if launched else "",
        launched_ranks=launched.ranks if launched else 0,
        launched_protocol=launched.protocol if launched else "",
        own_mpiexec=launch.own_mpiexec(),
        found_mpiexec=found,
        found_family=_family_of(found) if found and comm.rank == 0 else "",
        cores=_cores(),
        host_cores=os.cpu_count() or 1,
        threads=_threads(os.environ.get("OMP_NUM_THREADS", "")),
        shm_free=shm_free,
        gpus=_gpus(),
        mpi_takes_gpu_memory=gpu_memory.mpi_takes(gpu_memory.CUDA + gpu_memory.AMD),
        fabrics=sorted(path.name for path in Path("/sys/class/infiniband").glob("*")),
        transports=_transports(),
        settings={name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)},
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def folder_of(package: str) -> str:
    """Where a package is installed, found without importing it; empty if it is not."""
    spec = importlib.util.find_spec(package)
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def _kernels() -> tuple[str, str, str]:
    try:
        backend = kernels.load().name
    except ValueError as error:
        return "", str(error), ""
    if backend != "native":
        return backend, "", ""
    from spardl.kernels import _native

    return backend, "", _native.simd()


def _family_of(mpiexec: str) -> str:
    """Which MPI an mpiexec belongs to, by what it says of its version; empty if that tells nothing."""
    try:
        job = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=_VERSION_TAKES_AT_MOST)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    told = job.stdout + job.stderr
    marks = {"Open MPI": "Open MPI", "OpenRTE": "Open MPI", "Intel": "Intel MPI", "HYDRA": "MPICH"}
    return next((family for mark, family in marks.items() if mark in told), "")


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _threads(text: str) -> int:
    first = text.split(",")[0].strip()  # it may be a list, one number for each level of nesting
    return int(first) if first.isdecimal() else 0


def _gpus() -> int:
    nvidia = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    if Path("/dev/kfd").exists():  # AMD's compute driver; each GPU has a render node
        return nvidia or len(list(Path("/dev/dri").glob("renderD*")))
    return nvidia


def _transports() -> list[str]:
    try:
        loaded = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return [name for name in _TRANSPORTS if f"/{name}." in loaded]
