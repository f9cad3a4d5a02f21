"""Messages under way that nobody waits for, in either direction."""

from typing import Any, NamedTuple

import numpy as np

from spardl.effects import Bytes
from spardl.runtime.library import MPI

# An MPI may take one packet off its queue whenever it is asked, and receipts for what was sent are packets too.
ASKS = 8


class Outbox:
    """Keeps buffers until MPI has no more use for them."""

    def __init__(self) -> None:
        self._under_way: list[tuple[MPI.Request, Any]] = []

    def add(self, request: MPI.Request, buffer: Any) -> None:
        self._under_way.append((request, buffer))

    def sweep(self) -> bool:
        """Lets go of what is through. True if all is."""
        self._under_way = [(request, buffer) for request, buffer in self._under_way if not request.Test()]
        return not self._under_way


class Arriving(NamedTuple):
    request: MPI.Request
    source: int
    buffer: Bytes


def next_arriving(comm: MPI.Intracomm, tag: int, status: MPI.Status) -> Arriving | None:
    """The next message on this tag, from anyone, if one has come; it may still be on its way into the buffer."""
    for _ in range(ASKS):
        if (message := comm.Improbe(MPI.ANY_SOURCE, tag, status)) is not None:
            break
    else:
        return None
    buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
    return Arriving(message.Irecv([buffer, MPI.BYTE]), status.Get_source(), buffer)
