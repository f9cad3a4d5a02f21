"""What the ranks of a communicator do when it is first used: duplicate it, and tell each other where they are.

If all of them write a timeline they also compare their clocks. All of it is collective, and has a deadline.
"""

import socket
import time
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from spardl import timeline
from spardl.errors import PeerTimeout
from spardl.runtime.backoff import Backoff
from spardl.runtime.bell import NAME_BYTES, Bell, my_bell
from spardl.runtime.inspector import log, warning_time

_HOST_BYTES = 64  # longer names are cut
_PINGS = 10
_MOST_WARNERS = 32


def duplicate(comm: MPI.Intracomm, timeout: float) -> MPI.Intracomm:
    """Collective, like MPI's own, but not for ever."""
    if comm.size == 1:
        return comm.Dup()
    private, request = comm.Idup()
    _complete(request, comm, timeout)
    return private


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """What is known of a rank."""

    host: str
    bell: bytes | None  # its name, if it is within reach


def introduce(comm: MPI.Intracomm, timeout: float) -> tuple[Acquaintance, ...]:
    """Every rank. Nothing else has been sent on this communicator yet."""
    host, recorder, here = socket.gethostname().encode()[:_HOST_BYTES], timeline.current(), my_bell()
    name = bytes(NAME_BYTES) if here is None else here.name
    mine = np.frombuffer(host.ljust(_HOST_BYTES, b"\0") + name + bytes([recorder is not None]), np.uint8)
    gathered = np.empty((comm.size, len(mine)), np.uint8)
    _complete(comm.Iallgather(mine, gathered), comm, timeout)
    if recorder is not None and gathered[:, -1].all() and comm.size == MPI.COMM_WORLD.size:
        _compare_clocks(comm, recorder, timeout)
    return tuple(_acquaintance(row[:-1].tobytes(), here) for row in gathered)


def _acquaintance(told: bytes, here: Bell | None) -> Acquaintance:
    host, name = told[:_HOST_BYTES].rstrip(b"\0").decode(errors="replace"), told[_HOST_BYTES:]
    return Acquaintance(host, name if here is not None and here.reaches(name) else None)


def _compare_clocks(comm: MPI.Intracomm, recorder: timeline.Recorder, timeout: float) -> None:
    """Finds out by how much this rank's clock differs from rank 0's."""
    offset, least = 0, 0
    clock, theirs = np.empty(1, np.int64), np.empty(1, np.int64)
    for rank in range(1, comm.size):
        for _ in range(_PINGS):
            if comm.rank == 0:
                _complete(comm.Irecv(theirs, rank), comm, timeout)
                clock[0] = recorder.now()
                _complete(comm.Isend(clock, rank), comm, timeout)
            elif comm.rank == rank:
                asked = clock[0] = recorder.now()
                _complete(comm.Isend(clock, 0), comm, timeout)
                _complete(comm.Irecv(theirs, 0), comm, timeout)
                answered = recorder.now()
                if not least or answered - asked < least:
                    least = answered - asked
                    offset = int(theirs[0]) - (asked + answered) // 2
    # The clocks differ by this much, give or take half of the time that message and answer took.
    recorder.set_clock_offset(offset if abs(offset) > least / 2 else 0)


def _complete(request: MPI.Request, comm: MPI.Intracomm, timeout: float) -> None:
    began, warn_after = time.monotonic(), warning_time(None)
    warns = warn_after > 0 and comm.rank < _MOST_WARNERS
    pause = Backoff()
    while not request.Test():
        waited = time.monotonic() - began
        if warns and waited > warn_after:
            warns = False
            _warn(comm, waited, timeout)
        if waited > timeout:
            raise PeerTimeout(
                f"first use of a communicator of {comm.size} ranks: not all of them came within {timeout:g} s. "
                "Every rank of the communicator has to make this call.",
                ranks=(),
            )
        pause()


def _warn(comm: MPI.Intracomm, waited: float, timeout: float) -> None:
    """Who is missing cannot be asked: as yet there is no place for our messages. So whoever is here says so."""
    others = f"ranks below {_MOST_WARNERS}" if comm.size > _MOST_WARNERS else "ranks"
    log.warning(
        "spardl: rank %d of %d on host %s has waited for %.3g s for the others to use this communicator, and fails at "
        "%g s; %s that do not say so are missing.",
        *(comm.rank, comm.size, socket.gethostname(), waited, timeout, others),
    )
