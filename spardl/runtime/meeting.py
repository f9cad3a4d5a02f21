"""What the ranks of a communicator do when it is first used: duplicate it, and tell each other where they are.

If all of them write a timeline they also compare their clocks. All of it is collective, and has a deadline.
"""

import socket
import struct
import time
from dataclasses import dataclass

import numpy as np

from spardl import timeline
from spardl.errors import PeerError, PeerTimeout
from spardl.runtime import farewell, goodbye, neighbour
from spardl.runtime.backoff import Backoff
from spardl.runtime.bell import NAME_BYTES, Bell, my_bell
from spardl.runtime.goodbye import Line
from spardl.runtime.inspector import log, warning_time
from spardl.runtime.library import MPI
from spardl.runtime.neighbour import NOBODY, Process
from spardl.runtime.stall import answering_grace, longer_limit

_HOST_BYTES = 64  # longer names are cut
_PROCESS = struct.Struct("<qq")
_LOOK_EVERY = 20e-3  # seconds between looks at whether another rank has left
_LAST_MESSAGES_TAKE = 1.0  # seconds, at most, of a rank that came, and left as soon as it was through
_PINGS = 10
_MOST_WARNERS = 32


def duplicate(comm: MPI.Intracomm, timeout: float, line: Line) -> MPI.Intracomm:
    """Collective, like MPI's own, but not for ever. ``line``: of a communicator of the same ranks, for trouble."""
    if comm.size == 1:
        return comm.Dup()
    private, request = comm.Idup()
    _complete(request, line, timeout)
    return private


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """What is known of a rank."""

    host: str
    bell: bytes | None  # its name, if it is within reach
    process: Process = NOBODY  # if this one can see it


def introduce(comm: MPI.Intracomm, timeout: float, line: Line) -> tuple[Acquaintance, ...]:
    """Every rank. Nothing else has been sent on this communicator yet."""
    host, recorder, here = socket.gethostname().encode()[:_HOST_BYTES], timeline.current(), my_bell()
    name = bytes(NAME_BYTES) if here is None else here.name
    process = _PROCESS.pack(*neighbour.this_process())
    mine = np.frombuffer(host.ljust(_HOST_BYTES, b"\0") + process + name + bytes([recorder is not None]), np.uint8)
    gathered = np.empty((comm.size, len(mine)), np.uint8)
    _complete(comm.Iallgather(mine, gathered), line, timeout)
    if recorder is not None and gathered[:, -1].all() and comm.size == MPI.COMM_WORLD.size:
        _compare_clocks(comm, recorder, timeout, line)
    return tuple(_acquaintance(row[:-1].tobytes(), here) for row in gathered)


def _acquaintance(told: bytes, here: Bell | None) -> Acquaintance:
    host, name = told[:_HOST_BYTES].rstrip(b"\0").decode(errors="replace"), told[_HOST_BYTES + _PROCESS.size :]
    if here is None or not here.reaches(name):
        return Acquaintance(host, None)
    process = Process(*_PROCESS.unpack_from(told, _HOST_BYTES))
    return Acquaintance(host, name, process if neighbour.exists(process) else NOBODY)


def _compare_clocks(comm: MPI.Intracomm, recorder: timeline.Recorder, timeout: float, line: Line) -> None:
    """Finds out by how much this rank's clock differs from rank 0's."""
    offset, least = 0, 0
    clock, theirs = np.empty(1, np.int64), np.empty(1, np.int64)
    for rank in range(1, comm.size):
        for _ in range(_PINGS):
            if comm.rank == 0:
                _complete(comm.Irecv(theirs, rank), line, timeout)
                clock[0] = recorder.now()
                _complete(comm.Isend(clock, rank), line, timeout)
            elif comm.rank == rank:
                asked = clock[0] = recorder.now()
                _complete(comm.Isend(clock, 0), line, timeout)
                _complete(comm.Irecv(theirs, 0), line, timeout)
                answered = recorder.now()
                if not least or answered - asked < least:
                    least = answered - asked
                    offset = int(theirs[0]) - (asked + answered) // 2
    # The clocks differ by this much, give or take half of the time that message and answer took.
    recorder.set_clock_offset(offset if abs(offset) > least / 2 else 0)


def _complete(request: MPI.Request, line: Line, timeout: float) -> None:
    comm, began, warn_after = line.comm, time.monotonic(), warning_time(None)
    warns = warn_after > 0 and comm.rank < _MOST_WARNERS
    look = _Look(line, timeout)
    pause = Backoff()
    while not request.Test():
        waited = time.monotonic() - began
        if warns and waited > warn_after:
            warns = False
            _warn(comm, waited, timeout)
        look(waited)
        pause()


class _Look:
    """Has another rank left, or have we waited too long? Then those who came tell each other, and so who did not."""

    def __init__(self, line: Line, timeout: float) -> None:
        self._line, self._timeout = line, timeout
        self._next = 0.0
        self._left_at: float | None = None
        self._said_so = False

    def __call__(self, waited: float) -> None:
        if waited < self._next:
            return
        self._next = waited + _LOOK_EVERY
        goodbye.hear_all()
        self._require_present(waited)
        if not self._said_so and (self._line.came or waited > self._timeout - answering_grace(self._timeout)):
            self._said_so = True
            self._line.say_came()
        if waited > self._timeout:
            raise self._timed_out()

    def _require_present(self, waited: float) -> None:
        line = self._line
        left = [rank for rank, in_world in enumerate(line.in_world) if in_world in goodbye.departed]
        for rank in left:
            if (error := goodbye.departed[line.in_world[rank]].why(rank)) is not None:
                raise error
        if not left:
            return
        self._left_at = waited if self._left_at is None else self._left_at
        if waited < self._left_at + _LAST_MESSAGES_TAKE:
            return
        raise PeerError(
            f"first use of a communicator of {line.comm.size} ranks: {_ranks(left)} ended before it. Every rank of the "
            "communicator has to make this call.",
            ranks=tuple(left),
        )

    def _timed_out(self) -> PeerTimeout:
        line = self._line
        missing = sorted(set(range(line.comm.size)) - line.came - {line.comm.rank})
        line.came.clear()
        farewell.lose(line, missing or range(line.comm.size))
        who = f"{_ranks(missing)} did not come" if missing else "not all of them came"
        return PeerTimeout(
            f"first use of a communicator of {line.comm.size} ranks: {who} within {self._timeout:g} s. "
            f"Every rank of the communicator has to make this call. {longer_limit()}",
            ranks=tuple(missing),
        )


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _warn(comm: MPI.Intracomm, waited: float, timeout: float) -> None:
    """Who is missing cannot be asked: as yet there is no place for our messages. So whoever is here says so."""
    others = f"ranks below {_MOST_WARNERS}" if comm.size > _MOST_WARNERS else "ranks"
    log.warning(
        "spardl: rank %d of %d on host %s has waited for %.3g s for the others to use this communicator, and fails at "
        "%g s; %s that do not say so are missing.",
        *(comm.rank, comm.size, socket.gethostname(), waited, timeout, others),
    )
