"""Virtual time: all ranks in this process, on a modelled network. Two runs are equal to the bit.

One queue of events, in the order of their times and, at one time, of their making. A message takes what the network
says (``spardl.runtime.network``), training what it asks for with ``Compute``, a collective what it asks for with
``Work`` or what its kernels tell a ``Meter``. All else takes no time: processes answer their mail at once.
"""

import heapq
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any

import numpy as np

from spardl import notes
from spardl.effects import FRONT_BYTES, Collective, Mail, Post, Size, parts_of, size_of
from spardl.runtime.local import Action, Failed, Local, Strand, as_bytes
from spardl.runtime.meter import Meter, spent
from spardl.runtime.network import Network, Passage, Ports, nanoseconds
from spardl.runtime.process import CallOff, Done, Program
from spardl.runtime.trace import ARRIVING, COLLECTIVES, LEAVING, TRAINING, Log, Trace
from spardl.timeline.traced import traced

_FEW = 64  # alarms that were called off and may stay in the queue


def virtual(
    generators: Sequence[Collective[Any]] | Sequence[Program],
    *,
    network: Network,
    meter: Meter | None = None,
    record: bool = False,
) -> Trace:
    """Runs one collective or one program per rank to the end in virtual time.

    ``network``: of as many ranks; see ``spardl.runtime.network.cluster``. ``meter``: what kernels tell of their work.
    ``record``: keeps what every rank did when, for ``Trace.to_timeline``. An error on one rank is raised here.
    """
    return Virtual(generators, network=network, meter=meter, record=record).trace()


class Virtual(Local):
    """A run."""

    def __init__(
        self,
        generators: Sequence[Collective[Any]] | Sequence[Program],
        *,
        network: Network,
        meter: Meter | None = None,
        record: bool = False,
    ) -> None:
        if network.ranks != len(generators):
            raise ValueError(f"virtual: expected a network of {len(generators)} ranks, got one of {network.ranks}")
        super().__init__(generators)
        self._network, self._ports, self._meter = network, Ports(network), meter
        self._logs = [Log(self._nanoseconds) for _ in generators] if record else []
        self._clock = 0
        self._queue: list[tuple[int, int, list[Action]]] = []
        self._sequence = count()
        self._called_off = 0  # events in the queue
        self._sizes: tuple[Any, str, int] = (None, "", 0)  # of the last note
        self.events = 0

    def trace(self) -> Trace:
        results = self.run()
        last = max(self.seconds, default=0.0)
        return Trace(results, last, self.seconds, self.traffic, self.events, self._network.hosts, self._logs)

    def begin(
        self, key: Hashable, rank: int, size: int, collective: Collective[Any], done: Done, failed: Failed | None = None
    ) -> CallOff:
        if self._logs:
            collective = traced(self._logs[rank], COLLECTIVES, "collective", collective)
        if self._meter is not None:
            collective = spent(self._meter, collective)
        return super().begin(key, rank, size, collective, done, failed)

    # -- the queue -----------------------------------------------------------------------------------------------------

    def happen(self) -> bool:
        while self._queue:
            at, _, event = heapq.heappop(self._queue)
            if event:
                self._clock = at
                self.events += 1
                event.pop()()
                return True
            self._called_off -= 1
        return False

    def _at(self, time: int, action: Action) -> list[Action]:
        event = [action]
        heapq.heappush(self._queue, (time, next(self._sequence), event))
        return event

    def _call_off(self, event: list[Action]) -> None:
        if not event:  # it has happened
            return
        event.clear()
        self._called_off += 1
        if self._called_off > max(_FEW, len(self._queue) // 2):
            self._queue = [entry for entry in self._queue if entry[2]]
            heapq.heapify(self._queue)
            self._called_off = 0

    # -- time ----------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock / 1e9

    def _nanoseconds(self) -> int:
        return self._clock + (0 if self._meter is None else nanoseconds(self._meter.seconds))

    def soon(self, rank: int, action: Action) -> None:
        self._at(self._clock, action)

    def after(self, rank: int, seconds: float, ring: Action) -> CallOff:
        event = self._at(self._clock + nanoseconds(seconds), ring)
        return lambda: self._call_off(event)

    def compute(self, rank: int, seconds: float, done: Action) -> None:
        ends = self._clock + nanoseconds(seconds)
        if self._logs:
            self._logs[rank].add(TRAINING, "compute", "compute", self._clock, ends)
        self._at(ends, done)

    def work(self, rank: int, seconds: float, go_on: Action) -> bool:
        self._at(self._clock + nanoseconds(seconds), go_on)
        return False

    # -- messages ------------------------------------------------------------------------------------------------------

    def carry(self, sender: int, to: int, link: Hashable, nbytes: int, arrive: Action) -> None:
        if sender == to:
            self._at(self._clock, arrive)
            return
        passage = self._ports.leave(sender, to, FRONT_BYTES + nbytes, self._clock)
        if self._logs:
            busy = (passage.left, passage.left + passage.last - passage.first)
            self._logs[sender].add(LEAVING, f"to rank {to}", "port", *busy, bytes=nbytes)
        self._at(passage.first, lambda: self._let_in(sender, to, passage, arrive))

    def _let_in(self, sender: int, to: int, passage: Passage, arrive: Action) -> None:
        begins, ends = self._ports.arrive(passage)
        if self._logs:
            self._logs[to].add(ARRIVING, f"from rank {sender}", "port", begins, begins + passage.busy)
        self._at(ends, lambda: self._arrived(passage, arrive))

    def _arrived(self, passage: Passage, arrive: Action) -> None:
        self._ports.leave_behind(passage)
        arrive()

    def flush(self, strand: Strand, go_on: Action) -> bool:
        return strand.wait_for_delivery(go_on)

    def hand_out(self, strand: Strand, go_on: Action) -> None:
        taken = self._network.allreduce(size_of(strand.effect.values), strand.size)
        self._at(self._clock + taken, go_on)

    def envelope(self, sender: int, to: int, payload: Any) -> tuple[int, Callable[[], Any]]:
        if isinstance(payload, Size):
            return payload.nbytes, lambda: payload
        message = np.concatenate(parts_of(payload))  # a copy: the sender may use its buffer again
        message.flags.writeable = False
        return message.nbytes, lambda: message

    def letter(self, sender: int, post: Post) -> tuple[int, Callable[[], tuple[str, Mail]]]:
        array = post.array if post.array is None or isinstance(post.array, Size) else as_bytes(post.array)
        nbytes = self._note_bytes(post) + (0 if array is None else len(array))
        self.traffic[sender].messages_sent += 1
        self.traffic[sender].bytes_sent += nbytes
        self.traffic[post.to].bytes_received += nbytes
        return nbytes, lambda: (post.process, Mail(sender, post.note, array))

    def _note_bytes(self, post: Post) -> int:
        """Most notes are posted to many, one after the other."""
        note, process, nbytes = self._sizes
        if note is not post.note or process != post.process:
            nbytes = len(notes.to_bytes(post.process, post.note))
            self._sizes = (post.note, post.process, nbytes)
        return nbytes
