"""How a rank that sleeps hears that a message has come for it.

MPI can only be asked, again and again. Ranks of one host also have a socket each, its bell: whoever has sent a message
rings it. That tells who, and nothing about the message; and nothing is lost if it is not heard, as whoever waits looks
from time to time as well. Ranks of other hosts, or of other containers, do not reach each other's bells and do without.
"""

import secrets
import select
import socket
import threading
import weakref
from collections.abc import Collection
from contextlib import suppress
from functools import cache

NAME_BYTES = 32


class Bell:
    """A datagram socket in Linux's abstract namespace: it leaves no file behind, and ends with the process."""

    def __init__(self) -> None:
        self.name = f"spardl-{secrets.token_hex(8)}".encode().ljust(NAME_BYTES, b".")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        weakref.finalize(self, self._socket.close)
        self._socket.setblocking(False)
        self._socket.bind(b"\0" + self.name)
        self._polls = threading.local()  # one for each thread that listens: two may not use the same at once

    def reaches(self, name: bytes) -> bool:
        """Whether the bell of that name is on this host, and its rank still there."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
            line.connect(b"\0" + name)
            return True
        return False

    def ring(self, name: bytes) -> None:
        with suppress(OSError):  # it rings already, or nobody is there any more
            self._socket.sendto(b"!", b"\0" + name)

    def wait(self, milliseconds: int, ringers: Collection[bytes]) -> bool:
        """Sleeps until one of these, by their bells' names, has rung, or nobody has for so long. True if one has."""
        heard, rung = False, self._poll()
        with suppress(BlockingIOError):  # another thread that waits was quicker
            while rung.poll(0 if heard else milliseconds):
                _, ringer = self._socket.recvfrom(1)
                heard |= ringer[1:] in ringers
        return heard

    def _poll(self) -> select.poll:
        if not hasattr(self._polls, "own"):
            self._polls.own = select.poll()
            self._polls.own.register(self._socket, select.POLLIN)
        own: select.poll = self._polls.own
        return own


@cache
def my_bell() -> Bell | None:
    """This process's; None where there is no such thing."""
    try:
        return Bell()
    except (OSError, AttributeError):
        return None
