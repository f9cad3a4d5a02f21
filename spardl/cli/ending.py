"""How a command ends when it has failed: rank 0 says why, and only then does anybody leave.

A rank that leaves with an exit code other than 0 may take the others with it at once (under ``python -m mpi4py`` it
does), and what they had still to say would be lost.
"""

import fcntl
import os
import stat
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

if TYPE_CHECKING:
    from mpi4py import MPI

_LAUNCHER_READS_WITHIN = 5.0  # seconds


def fail_together(comm: "MPI.Intracomm", error: click.ClickException) -> NoReturn:
    """All ranks call this with the same error; rank 0 shows it."""
    if comm.rank == 0:
        error.show()
    exit_together(comm, error.exit_code)


def exit_together(comm: "MPI.Intracomm", code: int) -> NoReturn:
    """All ranks call this with the same code, after they have said everything."""
    from spardl.bench import ranks

    let_be_read(_LAUNCHER_READS_WITHIN if code else 0)  # nobody is ended by a rank that leaves in peace
    ranks.wait_for_all(comm)
    sys.exit(code)


def end_job(comm: "MPI.Intracomm", code: int) -> NoReturn:
    """Where other ranks do not answer, and would keep MPI from ending: ends them, too."""
    let_be_read()
    comm.Abort(code)


def let_be_read(within: float = _LAUNCHER_READS_WITHIN) -> None:
    """Waits until the launcher has read what was said.

    MPICH's is told of an abort by another way than of output, and what it has not read by then it never shows.
    """
    deadline = time.monotonic() + within
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        while _bytes_unread(stream) and time.monotonic() < deadline:
            time.sleep(1e-3)


def _bytes_unread(stream: TextIO) -> int:
    """By whoever holds the other end; 0 unless it is a pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
            return 0
        (unread,) = struct.unpack("i", fcntl.ioctl(stream.fileno(), termios.FIONREAD, bytes(4)))
    except (OSError, ValueError):  # replaced by something without a descriptor, or closed
        return 0
    return int(unread)
