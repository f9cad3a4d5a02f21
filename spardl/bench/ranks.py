"""What the ranks of a benchmark do together. Nobody spins: who is done must not slow down those that share a core.

Buffers only, and every wait has a deadline.
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.agreement import gather_json
from spardl.errors import PeerTimeout
from spardl.runtime.group import resolve
from spardl.runtime.library import MPI
from spardl.runtime.mpi import default_timeout

Floats = npt.NDArray[np.float64]
# Seconds. Who is done early may wait for long, and whoever wakes up to look takes the core from those who still work.
_FIRST_NAP, _LONGEST_NAP = 50e-6, 2e-3


def _finish(request: MPI.Request) -> None:
    deadline = time.monotonic() + default_timeout()
    nap = _FIRST_NAP
    while not request.Test():
        if time.monotonic() > deadline:
            raise PeerTimeout(f"benchmark: not all ranks came within {default_timeout():g} s", ranks=())
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)


def wait_for_all(comm: MPI.Intracomm) -> None:
    """Returns some time after all have come."""
    _finish(comm.Ibarrier())


def barrier(comm: MPI.Intracomm) -> None:
    """The same, and all return at once: naps alone would leave them milliseconds apart."""
    wait_for_all(comm)
    comm.Barrier()


def decide(comm: MPI.Intracomm, mine: list[bool]) -> list[bool]:
    """Rank 0's decision, on all ranks."""
    flags = np.array(mine, np.uint8)
    _finish(comm.Ibcast(flags, 0))
    return [bool(flag) for flag in flags]


def add_up(comm: MPI.Intracomm, array: npt.NDArray[Any]) -> None:
    """In place, element by element."""
    _finish(comm.Iallreduce(MPI.IN_PLACE, array))


def largest(comm: MPI.Intracomm, *numbers: float) -> list[float]:
    """Of every number, the largest that any rank has."""
    array = np.array(numbers, np.float64)
    _finish(comm.Iallreduce(MPI.IN_PLACE, array, MPI.MAX))
    return [float(number) for number in array]


def gather(comm: MPI.Intracomm, mine: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One row per rank; all have equally much."""
    everyone = np.empty((comm.size, *mine.shape), mine.dtype)
    _finish(comm.Iallgather(mine, everyone))
    return everyone


def gather_texts(comm: MPI.Intracomm, mine: str) -> list[str]:
    """What every rank has to say, by rank."""
    timeout = default_timeout()
    return gather_json(resolve(comm, timeout), mine, timeout, "benchmark")
