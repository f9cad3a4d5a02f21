"""Whether MPI reads and writes a GPU's memory by itself."""

import ctypes

from spardl import environment
from spardl.runtime import launch

CUDA = ("MPIX_Query_cuda_support",)
AMD = ("MPIX_Query_hip_support", "MPIX_Query_rocm_support")

_CHOICES = ("auto", "direct", "host")


def mpi_takes(questions: tuple[str, ...]) -> bool:
    """MPICH and Open MPI tell by a function of theirs; there are none of it where they cannot."""
    try:
        library = ctypes.CDLL(launch.library_path() or None)
    except OSError:
        return False
    return any(bool(getattr(library, name)()) for name in questions if hasattr(library, name))


def send_directly() -> bool:
    """Whether messages of gradients on a CUDA device go to MPI as they are: as told, or as MPI can."""
    wish = environment.GPU_MESSAGES.get()
    if wish not in _CHOICES:
        raise ValueError(f"{environment.GPU_MESSAGES.name}: expected one of {_CHOICES}, got {wish!r}")
    return wish == "direct" or (wish == "auto" and mpi_takes(CUDA))
