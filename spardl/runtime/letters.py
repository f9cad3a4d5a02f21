"""Mail between processes of different ranks on its way over MPI, beside the messages of collectives; for one thread."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from spardl import notes
from spardl.effects import FRONT_BYTES, Bytes, Mail, Post
from spardl.errors import WireError
from spardl.kernels import memory
from spardl.runtime.bell import my_bell
from spardl.runtime.channel import Channel
from spardl.runtime.envelope import Stamp, checked_stamp, sealed
from spardl.runtime.library import MPI
from spardl.runtime.outbox import Arriving, Outbox, next_arriving
from spardl.runtime.traffic import Traffic

_STAMP = Stamp(0, 0)  # nothing is left over from earlier ones: all that was sent is taken before they end
_ALIGNED = 8  # bytes; arrays begin at multiples


class Letters:
    """Notes on one tag and arrays with theirs on another, so that a large one does not hold up the rest."""

    def __init__(self, channel: Channel) -> None:
        self._group, self._channel = channel.group, channel  # kept: its tags are in use as long as it lives
        self._tags = self._group.tags(channel.pair)
        self._position = {rank: position for position, rank in enumerate(self._group.ranks)}
        self._outbox = Outbox()
        self._coming: deque[Arriving] = deque()  # arrays
        self._status = MPI.Status()
        self._last: tuple[Any, str, Bytes] | None = None  # a note for many is written once
        self.traffic = Traffic()  # of arrays alone

    @property
    def transfers(self) -> bool:
        """Whether an array is on its way in, which no bell announces."""
        return bool(self._coming)

    def send(self, post: Post) -> MPI.Request:
        text = self._text(post)
        if post.array is None:
            message = sealed(text, _STAMP, memory.HOST.messages)
        else:
            payload = _packed(text, np.frombuffer(np.ascontiguousarray(post.array), np.uint8))
            message = sealed(payload, _STAMP, memory.HOST.messages)
            self.traffic.add(Traffic(messages_sent=1, bytes_sent=len(message) - FRONT_BYTES))
        # Synchronous: when it is sent it has been taken, and nothing is left in flight.
        tag = self._tags[post.array is not None]
        request = self._group.comm.Issend([message, MPI.BYTE], self._group.ranks[post.to], tag)
        self._outbox.add(request, message)
        bell, name = my_bell(), self._group.bells[post.to]
        if bell is not None and name is not None:
            bell.ring(name)
        return request

    def _text(self, post: Post) -> Bytes:
        if self._last is None or self._last[0] is not post.note or self._last[1] != post.process:
            text = np.frombuffer(notes.to_bytes(post.process, post.note), np.uint8)
            self._last = (post.note, post.process, text)
        return self._last[2]

    def come(self) -> Iterator[tuple[str, Mail]]:
        """What has come, each with the process that it is for."""
        while (arriving := next_arriving(self._group.comm, self._tags[0], self._status)) is not None:
            arriving.request.Wait()  # short, so all of it is here
            source, text = self._opened(arriving)
            process, note = notes.from_bytes(text.tobytes())
            yield process, Mail(source, note)
        while (arriving := next_arriving(self._group.comm, self._tags[1], self._status)) is not None:
            self._coming.append(arriving)
        for _ in range(len(self._coming)):
            arriving = self._coming.popleft()
            if arriving.request.Test():
                source, payload = self._opened(arriving)
                self.traffic.add(Traffic(rounds=1, bytes_received=len(payload)))
                text, array = _unpacked(payload)
                process, note = notes.from_bytes(text.tobytes())
                yield process, Mail(source, note, array)
            else:
                self._coming.append(arriving)

    def sweep(self) -> bool:
        """Lets go of what has been sent. True if all has."""
        return self._outbox.sweep()

    def _opened(self, arriving: Arriving) -> tuple[int, Bytes]:
        checked_stamp(arriving.buffer, arriving.source)
        return self._position[arriving.source], arriving.buffer[FRONT_BYTES:]


def _packed(text: Bytes, array: Bytes) -> list[Bytes]:
    """The length of the text, the text, and the array where a multiple of eight bytes begins."""
    gap = np.zeros(-len(text) % _ALIGNED, np.uint8)
    return [np.array([len(text)], np.int64).view(np.uint8), text, gap, array]


def _unpacked(payload: Bytes) -> tuple[Bytes, Bytes]:
    length = int(payload[:_ALIGNED].view(np.int64)[0]) if len(payload) >= _ALIGNED else -1
    begin = _ALIGNED + length + -length % _ALIGNED
    if length < 0 or begin > len(payload):
        raise WireError(f"{len(payload)} bytes arrived that are no note with an array")
    array = payload[begin:]
    array.flags.writeable = False
    return payload[_ALIGNED : _ALIGNED + length], array
