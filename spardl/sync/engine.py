"""Runs RNA's machines on real ranks, in a thread beside training."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from spardl.agreement import open_channel
from spardl.collectives.bruck import bruck
from spardl.collectives.frames import numbers_in
from spardl.effects import Bytes
from spardl.errors import PeerTimeout, WireError, from_notice, to_notice
from spardl.runtime.channel import Told
from spardl.runtime.failure import as_peer_error
from spardl.runtime.group import Group
from spardl.runtime.library import MPI
from spardl.runtime.mpi import Task
from spardl.runtime.stall import answering_grace
from spardl.runtime.traffic import Traffic
from spardl.sync.between import Between
from spardl.sync.box import GradientBox
from spardl.sync.notes import Commit, Fault, Go, Note, Ping, Pong, Stop, Want, from_bytes, to_bytes
from spardl.sync.parts import Shift, Sum
from spardl.sync.policies import Policy
from spardl.sync.post import Post
from spardl.sync.protocol import (
    CALLED_OFF,
    SCHEDULER,
    Ask,
    Fetch,
    InRound,
    Listen,
    Machine,
    Part,
    Scheduler,
    Tell,
    worker,
)
from spardl.sync.rollcall import RollCall

_SHORTEST_NAP, _LONGEST_NAP = 50e-6, 500e-6  # a round takes a dozen messages, and each may find a rank asleep
_FAREWELL = 2.0  # seconds that a rank which ends takes at most to tell the others
_NOTHING = np.empty(0, np.uint8)

Seen = TypeVar("Seen")


class CodedPart(Part, Protocol):
    """A part whose results can be sent."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def size(self) -> int: ...

    def write(self, result: Sum) -> Bytes: ...

    def read(self, message: Bytes) -> Sum: ...


class _Driven:
    """A machine, what it asks for, and the notes that have come for it."""

    def __init__(self, machine: Machine[int]) -> None:
        self._machine = machine
        self.inbox: deque[tuple[int, Note]] = deque()
        self.ask: Ask | None = None
        self.since = 0.0
        self.ended = False

    def resume(self, answer: Any = None) -> None:
        try:
            self.ask = self._machine.send(answer)
            self.since = time.monotonic()
        except StopIteration:
            self.ended, self.ask = True, None


class Engine:
    """One rank's part in RNA. All ranks build theirs together, ``start`` it, and ``join`` it in the end."""

    def __init__(
        self,
        group: Group,
        box: GradientBox,
        part: CodedPart,
        policy: Policy,
        *,
        patience: float,
        timeout: float,
        terms: Callable[[], str] = str,
        between: Between | None = None,
    ) -> None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError(
                "RNA communicates in a thread of its own, which needs MPI_THREAD_MULTIPLE; this MPI gives less. "
                "mpi4py asks for it unless mpi4py.rc.thread_level says otherwise."
            )
        self._group, self._box, self._part, self._timeout, self._between = group, box, part, timeout, between
        self._rounds, self._closing, post = (open_channel(group, dict, timeout, "RNA") for _ in range(3))
        self._post = Post(post)
        self._roll = RollCall(group, self._post) if between is None else between.roll
        box.timed_out = self._roll.timed_out
        self._worker = _Driven(worker(group.me, box, part))
        scheduler = Scheduler(group.size, policy, patience, terms, lambda: box.shift is not None)
        self._scheduler = _Driven(scheduler.run()) if group.me == SCHEDULER else None
        self._machines = [machine for machine in (self._worker, self._scheduler) if machine is not None]
        self._reduced = Traffic()  # by members of rounds
        self.seconds = 0.0  # in rounds, and waiting for results of others
        self._moving = threading.Lock()  # held by the thread while it works, and not while it waits
        self._task: Task[Sum] | None = None
        self._asked: Fetch | None = None  # for what a Want is under way
        self._fetched: dict[int, Sum | Shift] = {}  # by round
        self._wanted: list[tuple[int, int]] = []  # who wants which round, as soon as it is here
        self._thread = threading.Thread(target=self._run, name="spardl-rna", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def traffic(self) -> Traffic:
        """Of all rounds, results for those who were absent, and weights between groups; notes do not count."""
        total = Traffic()
        for part in (self._reduced, self._post.traffic, *([self._between.post.traffic] if self._between else [])):
            total.add(part)
        return total

    def look(self, at: Callable[[], Seen]) -> Seen:
        """What ``at`` returns at a moment when the thread changes nothing."""
        with self._moving:
            return at()

    def join(self) -> None:
        """After the box was closed: waits until all ranks have gone through all rounds, and raises what went wrong.

        Others may have much left to do; the time limit is for one round, and includes asking who is there.
        """
        seen = -1
        while self._thread.is_alive() and seen != (signs := self._signs_of_life()):
            seen = signs
            self._thread.join(self._timeout - answering_grace(self._timeout))
        if self._thread.is_alive():
            self._box.fail(self._roll.timed_out("RNA: no round has ended", self._timeout))
            self._thread.join(_FAREWELL)
        if self._box.error is not None:
            raise self._box.error

    def give_up(self, error: BaseException) -> None:
        """This rank ends here, and tells the others why; waits only for that."""
        self._box.fail(error)
        self._thread.join(_FAREWELL)

    def _signs_of_life(self) -> int:
        return len(self._box.metrics.contributors) + (self._between.heard if self._between is not None else 0)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._drive(lambda: all(machine.ended for machine in self._machines), self._advance)
            self._close()
            if self._between is not None:
                self._end_with_other_groups(self._between)
        except Told as told:  # the others know
            self._box.fail(told.error)
        except BaseException as error:
            if isinstance(error, MPI.Exception):
                error = as_peer_error(error, self._group, "RNA")
            self._box.fail(error)
            self._tell_fault(error)

    def _drive(self, done: Callable[[], bool], advance: Callable[[], bool]) -> None:
        nap = _SHORTEST_NAP
        while not done():
            if self._box.error is not None:
                raise self._box.error
            with self._moving:
                moved = advance() | self._advance_between()
                self._roll.advance()
            if moved:
                nap = _SHORTEST_NAP
            else:
                self._box.wait_for_news(nap)
                nap = min(2 * nap, _LONGEST_NAP)

    def _advance_between(self) -> bool:
        return self._between is not None and self._between.advance(self._offer)

    def _offer(self, shift: Shift) -> None:
        if self._box.shift is None:  # or one is on its way, which this one knows nothing of
            self._box.shift = shift

    def _advance(self) -> bool:
        moved = self._take_notes() | self._take_parcels() | self._send_wanted()
        for machine in self._machines:
            while not machine.ended and self._answer(machine):
                moved = True
        return moved

    def _close(self) -> None:
        """Nothing is left in flight, here or elsewhere. Attempts that were called off have left messages behind."""
        meeting = Task(
            self._closing, bruck(range(self._group.size), self._group.me, _NOTHING), self._timeout, "RNA's end"
        )

        deadline = time.monotonic() + self._timeout

        def advance() -> bool:
            moved = self._take_notes()  # a Ping may still come
            self._rounds.drain()
            if self._rounds.sweep() & self._post.sweep():
                return meeting.advance() or moved
            if time.monotonic() > deadline:
                raise PeerTimeout("RNA: a rank has not taken what was sent to it", ranks=())
            return moved

        self._drive(lambda: meeting.done, advance)

    def _end_with_other_groups(self, between: Between) -> None:
        """They may have much left to do."""
        self._drive(lambda: between.group_can_end, lambda: False)
        between.end_group()
        self._drive(lambda: between.all_ended, between.advance_end)

    def _tell_fault(self, error: BaseException) -> None:
        note = Fault(to_notice(error).decode())
        post = self._post if self._between is None else self._between.post
        post.tell_all(to_bytes(note))
        deadline = time.monotonic() + _FAREWELL / 2
        while not post.sweep() and time.monotonic() < deadline:
            time.sleep(_SHORTEST_NAP)

    # -- post ----------------------------------------------------------------------------------------------------------

    def _take_notes(self) -> bool:
        moved = False
        while (found := self._post.next_note()) is not None:
            moved = True
            sender, note = found[0], from_bytes(found[1])
            if self._between is None:
                self._roll.hear(sender)
            if isinstance(note, Ping):
                self._post.send_note(sender, to_bytes(Pong()))
            elif isinstance(note, Want):
                self._wanted.append((sender, note.round))
            elif isinstance(note, Fault):
                raise Told(from_notice(note.text.encode(), self._group.ranks[sender]))
            elif isinstance(note, Go | Commit | Stop):
                if isinstance(note, Go):
                    self._box.forget(note.needed_from)
                self._worker.inbox.append((sender, note))
            elif self._scheduler is not None:
                self._scheduler.inbox.append((sender, note))
        return moved

    def _send_wanted(self) -> bool:
        able = [(rank, round) for rank, round in self._wanted if round in self._box.log]
        for rank, round in able:
            self._wanted.remove((rank, round))
            parcel = self._write(round, self._box.log[round])
            self._post.send_parcel(rank, parcel)
        return bool(able)

    def _take_parcels(self) -> bool:
        if (found := self._post.next_parcel()) is None:
            return False
        round, result = self._read(found[1])
        if self._asked is not None and round == self._asked.round:
            self._fetched[round] = result
        return True

    def _write(self, round: int, result: Sum | Shift) -> Bytes:
        head = np.array([round, isinstance(result, Shift)], np.int64).view(np.uint8)
        body = result.delta.view(np.uint8) if isinstance(result, Shift) else self._part.write(result)
        return np.concatenate([head, body])

    def _read(self, parcel: Bytes) -> tuple[int, Sum | Shift]:
        if len(parcel) < 16:
            raise WireError(f"{len(parcel)} bytes arrived that are no round's result")
        round, shift = parcel[:16].view(np.int64).tolist()
        if not shift:
            return round, self._part.read(parcel[16:])
        return round, Shift(numbers_in(parcel[16:], self._part.dtype, self._part.size))

    # -- what the machines ask for -------------------------------------------------------------------------------------

    def _answer(self, machine: _Driven) -> bool:
        """True if the machine has moved."""
        ask = machine.ask
        if isinstance(ask, Listen):
            return _listen(machine, ask)
        if isinstance(ask, InRound):
            return self._in_round(machine, ask)
        if isinstance(ask, Fetch):
            return self._fetch(machine, ask)
        if isinstance(ask, Tell):
            self._post.send_note(ask.to, to_bytes(ask.note))
        machine.resume()
        return True

    def _in_round(self, machine: _Driven, ask: InRound) -> bool:
        if any(isinstance(note, Go) for _, note in machine.inbox):  # for another attempt
            ask.part.close()
            if self._task is not None:
                self._task.call_off()
                self._reduced.add(self._task.traffic)
                self._task = None
            self._end_wait(machine, CALLED_OFF)
            return True
        if self._task is None:
            self._task = Task(self._rounds, ask.part, self._timeout, f"RNA's round {ask.go.round}", ask.go.number)
        moved = self._task.advance()
        if self._task.done:
            self._reduced.add(self._task.traffic)
            result, self._task = self._task.wait(), None
            self._end_wait(machine, result)
        return moved

    def _fetch(self, machine: _Driven, ask: Fetch) -> bool:
        if any(isinstance(note, Commit) and note.round == ask.round for _, note in machine.inbox):
            self._asked = None
            self._end_wait(machine, CALLED_OFF)
            return True
        if self._asked is None:
            self._asked = ask
            self._post.send_note(ask.provider, to_bytes(Want(ask.round)))
        if ask.round not in self._fetched:
            return False
        self._asked = None
        self._end_wait(machine, self._fetched.pop(ask.round))
        return True

    def _end_wait(self, machine: _Driven, answer: Any) -> None:
        """For what has taken other ranks."""
        self.seconds += time.monotonic() - machine.since
        machine.resume(answer)


def _listen(machine: _Driven, ask: Listen) -> bool:
    late = ask.seconds is not None and time.monotonic() > machine.since + ask.seconds
    if machine.inbox:
        machine.resume(machine.inbox.popleft())
    elif late or (ask.until is not None and ask.until()):
        machine.resume(None)
    else:
        return False
    return True
