"""A group's line for one sequence of collectives, with what keeps its ranks together when something fails.

Calls on a channel are numbered alike on all ranks. Every message carries its call's number, so that what is left over
from a call that failed is thrown away by the next. A rank that fails tells all others on the control tag (a *notice*);
they look there whenever they wait, and raise the same error. A rank whose wait gets too long says so too; those that
hear it answer with what they wait for, and whoever has not spoken by the end of the grace period is missing.
"""

import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from spardl.effects import FRONT_BYTES, Bytes
from spardl.errors import OutOfStep, PeerError, PeerTimeout, WireError, from_notice, to_notice
from spardl.kernels import memory
from spardl.kernels.api import Messages
from spardl.runtime import farewell, goodbye
from spardl.runtime.bell import my_bell
from spardl.runtime.envelope import Stamp, checked_stamp, sealed, stamp_of
from spardl.runtime.group import FIRST_FREE, Group
from spardl.runtime.inspector import Lookout
from spardl.runtime.library import MPI
from spardl.runtime.outbox import ASKS, Outbox, next_arriving
from spardl.runtime.stall import Report, Stall
from spardl.runtime.sums import Sums

_FAULT, _STALL, _WAIT = 1, 2, 3
_NOTICE_TAKES_AT_MOST = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Notice:
    """What a rank told the others about a call."""

    sender: int
    call: int
    kind: int
    body: bytes

    @property
    def is_stall(self) -> bool:
        return self.kind == _STALL


class Channel:
    """Not for several threads at once, and for one collective at a time; any number of channels may be in use."""

    def __init__(self, group: Group, pair: int, warn_after: float) -> None:
        self.group, self.pair, self.warn_after = group, pair, warn_after
        self.lookout = Lookout(group.size)
        self.track: int | None = None  # in the timeline, if there is one
        self.flight: Any = None  # the collective that is under way
        self.messages: Messages = memory.HOST.messages  # where they are made and arrive; a GPU's, if MPI reads that
        self._data_tag, self._control_tag = group.tags(pair)
        self._generation, self._key = group.generation(pair), group.channel_key(pair)
        group.home.in_use[self._data_tag] = self
        self._bell, self._bells = my_bell(), group.bells
        self._position = {rank: position for position, rank in enumerate(group.ranks)}
        self._call = 0
        self._busy = self._among_some = False
        self._ahead_since: float | None = None
        self._answered: set[int] = set()  # calls that are not under way here, in which others have stalled
        self._failed: set[int] = set()
        self._notices: defaultdict[int, list[Notice]] = defaultdict(list)
        self._status = MPI.Status()  # one for all probes: polling is what a waiting rank does most
        self._early: defaultdict[int, deque[Bytes]] = defaultdict(deque)  # of later calls, by source
        self.sums: Sums | None = None  # for the library's own all-reduce
        self._outbox = Outbox()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def begin(self, number: int | None = None) -> int:
        """Starts the next call and returns its number.

        With ``number``, a call that not all ranks take part in: its members know it by this number, which is higher
        than those of all calls before, and what the others do does not concern it.
        """
        if self._busy:
            raise RuntimeError("a collective is already under way on this channel; wait for it before the next")
        self._busy = True
        self.sweep()
        self._among_some = number is not None
        if number is not None:
            self._call = number
            return number
        self._call += 1
        self._hear()
        # The others gave up waiting for us: that call is over, and this one is their next.
        while any(notice.is_stall for notice in self._notices[self._call]):
            self._failed.add(self._call)
            self._call += 1
        return self._call

    def sweep(self) -> bool:
        """Lets go of what has been sent. True if all has."""
        return self._outbox.sweep()

    def end(self, *, failed: bool) -> None:
        self._busy = False
        if failed:
            self._failed.add(self._call)
        elif not self._among_some:
            farewell.find_again(self.group.line, self.group.ranks)
        if not self._among_some:
            self.group.line.note(self._key, self._call)
        for call in [call for call in self._notices if call <= self._call]:
            del self._notices[call]
        self.lookout.forget(self._call)
        self._answered.clear()
        self._failed = {call for call in self._failed if call > self._call - 1000}

    # -- notices -------------------------------------------------------------------------------------------------------

    def tell_fault(self, error: BaseException) -> None:
        """Makes every other rank raise ``error`` in this call."""
        self._tell(_FAULT, to_notice(error))

    def tell_stall(self, stall: Stall, call: int | None = None) -> None:
        """To those who wait in this call; or in another, which some are still in, or are in already."""
        self._tell(_STALL, stall.to_bytes(), call)

    def stalled_elsewhere(self) -> list[int]:
        """Other calls than this in which ranks have stalled; each is told of once."""
        stalled = {call for call, told in self._notices.items() if any(notice.is_stall for notice in told)}
        unanswered = sorted(stalled - self._answered - {self._call})
        self._answered.update(unanswered)
        return [] if self._among_some else unanswered

    def tell_wait(self, report: Report | None) -> None:
        """This rank waits, or, with None, goes on after all."""
        self._tell(_WAIT, b"" if report is None else report.to_bytes())

    def notices(self) -> list[Notice]:
        """Stalls that were told of this call. Raises if a rank failed in it, in one that went well here, or went on."""
        self._hear()
        for call in [call for call in self._notices if call < self._call]:
            if call in self._failed or self._among_some:
                del self._notices[call]
            for notice in self._notices.get(call, ()):
                if not notice.is_stall:  # whoever has only stalled may still get through
                    raise self._out_of_step(notice)
        for notice in self._notices[self._call]:
            if not notice.is_stall:
                raise Told(from_notice(notice.body, self._name(notice.sender)))
        if not self._among_some:
            self._require_present()
            self._require_in_step()
        return self._notices[self._call]

    def _out_of_step(self, notice: Notice) -> Exception:
        """A rank failed in a call that succeeded here. Who is gone is to blame for it, not who tells."""
        sender, me = self._name(notice.sender), self._name(self.group.me)
        told = from_notice(notice.body, sender)
        consequence = "the ranks' states differ now. Restore all of them from a checkpoint."
        if isinstance(told, PeerTimeout | PeerError) and sender not in told.ranks:
            return told.with_text(f"{told} That call had succeeded on rank {me}: {consequence}")
        return OutOfStep(
            f"rank {sender} failed in call {notice.call}, which succeeded on rank {me}: {consequence} It said: {told}"
        )

    def _require_present(self) -> None:
        """Raises if a rank has left that has not been through this call."""
        line = self.group.line
        line.hear()
        for rank, left in list(line.left.items()):  # another thread may hear of more
            if rank in self._position and not left.goes_through(self._key, self._call):
                error = left.why(rank) or PeerError(
                    f"rank {rank} has ended its program, by sys.exit or at the end of its script, and the others are "
                    "still making calls with it. Every rank has to make the same calls.",
                    ranks=(rank,),
                )
                raise Told(error) if line.comm.size <= goodbye.TELLS_ALL else error

    def _require_in_step(self) -> None:
        """A rank may go on to the next call because this one failed there; then it told us, and that is on its way."""
        ahead = [source for source, early in self._early.items() if early and stamp_of(early[0]).call > self._call]
        if not ahead:
            self._ahead_since = None
        elif self._ahead_since is None:
            self._ahead_since = time.monotonic()
        elif time.monotonic() > self._ahead_since + _NOTICE_TAKES_AT_MOST:
            there = stamp_of(self._early[ahead[0]][0]).call
            raise OutOfStep(
                f"rank {self._name(ahead[0])} is in call {there} of this collective, rank "
                f"{self._name(self.group.me)} in {self._call}. Every rank has to make the same calls in the same order."
            )

    def _name(self, position: int) -> int:
        """The number that people know this rank of the group by."""
        return self.group.ranks[position]

    def _tell(self, kind: int, body: bytes, call: int | None = None) -> None:
        text = np.frombuffer(bytes([kind]) + body, np.uint8)
        notice = sealed(text, Stamp(self._generation, self._call if call is None else call), memory.HOST.messages)
        for position, rank in enumerate(self.group.ranks):
            if position != self.group.me:
                with suppress(MPI.Exception):  # it is dead; the others shall hear of it all the same
                    self._outbox.add(self.group.comm.Isend([notice, MPI.BYTE], rank, self._control_tag), notice)

    def _hear(self) -> None:
        while (arriving := next_arriving(self.group.comm, self._control_tag, self._status)) is not None:
            arriving.request.Wait()  # short, so all of it is here
            self._take_in(arriving.buffer, self._position[arriving.source])

    def _take_in(self, message: Bytes, sender: int) -> None:
        try:
            generation, call = checked_stamp(message, self._name(sender))
        except (WireError, OutOfStep) as error:  # as if the sender had told of it
            self._notices[self._call].append(Notice(sender, self._call, _FAULT, to_notice(error)))
            return
        if generation != self._generation:
            return
        kind, body = int(message[FRONT_BYTES]), message[FRONT_BYTES + 1 :].tobytes()
        if kind == _WAIT:
            self.lookout.hear(sender, Report.from_bytes(body) if body else None)
        else:
            self._notices[call].append(Notice(sender, call, kind, body))

    # -- data ----------------------------------------------------------------------------------------------------------

    def send(self, to: int, payload: Any) -> "Outgoing":
        message = sealed(payload, Stamp(self._generation, self._call), self.messages)
        request = self.group.comm.Isend([self.messages.handle(message), MPI.BYTE], self.group.ranks[to], self._data_tag)
        if self._bell is not None and (name := self._bells[to]) is not None:
            self._bell.ring(name)
        return Outgoing(request, message, to)

    def sum(self, values: Any, out: Any) -> MPI.Request:
        """Starts the library's all-reduce."""
        if self.sums is None:
            raise RuntimeError("Allreduce: only SparseAllreduce(algorithm='dense_mpi') prepares for it")
        return self.sums.start(values, out)

    def abandon_sum(self, request: MPI.Request, buffers: Any) -> None:
        assert self.sums is not None
        self.sums.abandon(request, buffers)

    def require_sound(self) -> None:
        """Raises if a sum of an earlier call is not over: this call's would be taken for it by the other ranks."""
        if self.sums is not None and not self.sums.is_sound:
            raise RuntimeError(
                f"rank {self._name(self.group.me)} is still in an Allreduce of the MPI library that an earlier call "
                "gave up; build the SparseAllreduce anew"
            )

    def drain(self) -> None:
        """Between calls: throws away what has come, so that senders can let go of it."""
        while (arriving := next_arriving(self.group.comm, self._data_tag, self._status)) is not None:
            self._outbox.add(arriving.request, arriving.buffer)

    def abandon(self, request: MPI.Request, buffer: Bytes) -> None:
        """Leaves a message to complete whenever its receiver throws it away."""
        self._outbox.add(request, buffer)

    def arriving(self, source: int) -> "Incoming | None":
        """The next message from ``source``, if it has come; it may still be on its way into the buffer."""
        if early := self._early[source]:
            return (
                Incoming(MPI.REQUEST_NULL, early.popleft(), source) if stamp_of(early[0]).call <= self._call else None
            )
        ask, rank = self.group.comm.Improbe, self.group.ranks[source]
        for _ in range(ASKS):
            if (message := ask(rank, self._data_tag, self._status)) is not None:
                break
        else:
            return None
        buffer = self.messages.inbox(self._status.Get_count(MPI.BYTE))
        return Incoming(message.Irecv([self.messages.handle(buffer), MPI.BYTE]), buffer, source)

    def bell_of(self, source: int) -> bytes | None:
        """The name of the bell of ``source``, if it rings this process's when it has sent a message."""
        return self._bells[source]

    def accept(self, incoming: "Incoming") -> Bytes | None:
        """The payload of a received message, or None if it is of another call: left over, or early."""
        message = self.messages.opened(incoming.buffer)
        generation, call = checked_stamp(message, self._name(incoming.source))
        if generation != self._generation:
            self._require_own_tags()
            return None
        if call > self._call:
            self._early[incoming.source].append(message)
        if call != self._call:
            return None
        payload: Bytes = message[FRONT_BYTES:]
        return payload

    def _require_own_tags(self) -> None:
        """What an object that is gone has left on these tags does no harm. Two lists of ranks may share theirs."""
        if self.pair < FIRST_FREE:
            raise OutOfStep(
                f"messages of two lists of ranks meet on one tag, one of them {list(self.group.ranks)}. "
                "Build a communicator for one of the lists, with comm.Create_group."
            )


class Outgoing(NamedTuple):
    request: MPI.Request
    message: Bytes
    to: int


class Incoming(NamedTuple):
    request: MPI.Request
    buffer: Bytes
    source: int


class Told(Exception):
    """Carries an error that another rank told us of, so that it is not told again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
