"""Notes and results on their way between ranks, beside the messages of the rounds; for one thread."""

from collections import deque
from typing import Any

import numpy as np

from spardl.effects import FRONT_BYTES, Bytes
from spardl.kernels import memory
from spardl.runtime.channel import Channel
from spardl.runtime.envelope import Stamp, checked_stamp, sealed
from spardl.runtime.library import MPI
from spardl.runtime.traffic import Traffic

_STAMP = Stamp(0, 0)  # nothing is left over from earlier ones: all that was sent is taken before they end


class Post:
    """Messages of bytes on two tags, notes and parcels; of each kind, those between two ranks keep their order."""

    def __init__(self, channel: Channel) -> None:
        self._group, self._channel = channel.group, channel  # kept: its tags are in use as long as it lives
        self._tags = self._group.tags(channel.pair)
        self._position = {rank: position for position, rank in enumerate(self._group.ranks)}
        self._outbox: list[tuple[MPI.Request, Any]] = []
        self._to_self: tuple[deque[Bytes], deque[Bytes]] = (deque(), deque())
        self._arriving: deque[tuple[MPI.Request, int, Bytes]] = deque()  # parcels
        self._status = MPI.Status()
        self.traffic = Traffic()  # parcels alone

    def send_note(self, to: int, note: bytes) -> None:
        self._send(0, to, np.frombuffer(note, np.uint8))

    def tell_all(self, note: bytes) -> None:
        """All others."""
        for rank in set(range(self._group.size)) - {self._group.me}:
            self.send_note(rank, note)

    def send_parcel(self, to: int, parcel: Bytes) -> None:
        if to != self._group.me:
            self.traffic.add(Traffic(messages_sent=1, bytes_sent=len(parcel)))
        self._send(1, to, parcel)

    def next_note(self) -> tuple[int, bytes] | None:
        """The next that has come, with its sender; None if there is none yet."""
        if self._to_self[0]:
            return self._group.me, self._to_self[0].popleft().tobytes()
        if (found := self._probe(0)) is None:
            return None
        request, source, buffer = found
        request.Wait()  # short, so all of it is here
        return source, self._opened(buffer, source).tobytes()

    def next_parcel(self) -> tuple[int, Bytes] | None:
        """The same for parcels, which may take their time, or their sender stop half-way."""
        if self._to_self[1]:
            return self._group.me, self._to_self[1].popleft()
        while (found := self._probe(1)) is not None:
            self._arriving.append(found)
        for _ in range(len(self._arriving)):
            request, source, buffer = self._arriving.popleft()
            if request.Test():
                parcel = self._opened(buffer, source)
                self.traffic.add(Traffic(rounds=1, bytes_received=len(parcel)))
                return source, parcel
            self._arriving.append((request, source, buffer))
        return None

    def sweep(self) -> bool:
        """Lets go of what has been sent. True if all has."""
        self._outbox = [(request, buffer) for request, buffer in self._outbox if not request.Test()]
        return not self._outbox

    def _send(self, kind: int, to: int, message: Bytes) -> None:
        if to == self._group.me:
            self._to_self[kind].append(message)
            return
        message = sealed(message, _STAMP, memory.HOST.messages)
        # Synchronous: when it is sent it has been taken, and nothing is left in flight.
        request = self._group.comm.Issend([message, MPI.BYTE], self._group.ranks[to], self._tags[kind])
        self._outbox.append((request, message))

    def _opened(self, message: Bytes, source: int) -> Bytes:
        checked_stamp(message, self._group.ranks[source])
        return message[FRONT_BYTES:]

    def _probe(self, kind: int) -> tuple[MPI.Request, int, Bytes] | None:
        message = self._group.comm.Improbe(MPI.ANY_SOURCE, self._tags[kind], self._status)
        if message is None:
            return None
        source = self._position[self._status.Get_source()]
        buffer = np.empty(self._status.Get_count(MPI.BYTE), np.uint8)
        return message.Irecv([buffer, MPI.BYTE]), source, buffer
