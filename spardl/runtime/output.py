"""What this process has printed, on its way through the launcher."""

import fcntl
import os
import stat
import struct
import sys
import termios
import time
from typing import TextIO

_LAUNCHER_READS_WITHIN = 5.0  # seconds


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
