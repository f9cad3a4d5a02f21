"""Runs a rank's processes on real ranks, in a thread beside training: the carrier that uses MPI."""

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from spardl.effects import Collective, Exchange, Join, Mail, Post
from spardl.errors import PeerTimeout
from spardl.runtime.among import among
from spardl.runtime.backoff import Backoff
from spardl.runtime.channel import Channel
from spardl.runtime.door import Door, Failed, Looks
from spardl.runtime.failure import as_peer_error
from spardl.runtime.letters import Letters
from spardl.runtime.library import MPI
from spardl.runtime.mpi import Task
from spardl.runtime.process import FAULTS, CallOff, Done, Program, Rank
from spardl.runtime.traffic import Traffic

FAREWELL = 2.0  # seconds that a rank which ends takes at most to tell the others
_FAULT_TAKES = 1.0  # seconds, for the same
_NOTHING = np.empty(0, np.uint8)


class Channels(NamedTuple):
    """Three of the same group, whose ranks all run processes."""

    mail: Channel
    collectives: Channel
    closing: Channel


class ProcessThread:
    """One rank's processes. ``start`` it on all ranks; training talks to them by ``door``."""

    def __init__(self, program: Program, channels: Channels, timeout: float, name: str) -> None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError(
                f"{name} communicates in a thread of its own, which needs MPI_THREAD_MULTIPLE; this MPI gives less. "
                "mpi4py asks for it unless mpi4py.rc.thread_level says otherwise."
            )
        group = channels.mail.group
        self._group, self._timeout, self._name = group, timeout, name
        self._letters, self._collectives, self._closing = Letters(channels.mail), *channels[1:]
        self.door = Door(group.me)
        self._rank = Rank(group.me, range(group.size), program, self)
        self._alarms: list[tuple[float, int, list[Callable[[], None]]]] = []
        self._sequence = count()
        self._task: Task[Any] | None = None
        self._done: Done | None = None  # of the task
        self._meeting: _Meeting | None = None
        self._faults: list[MPI.Request] = []  # told to others
        self._reduced = Traffic()  # by collectives
        bells = group.bells
        self._ringers = {bell for bell in bells if bell is not None} if None not in bells else set[bytes]()
        self._thread = threading.Thread(target=self._run, name=f"spardl-{name.lower()}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def traffic(self) -> Traffic:
        """Of collectives, and arrays that were posted; notes do not count."""
        total = Traffic()
        for part in (self._reduced, self._letters.traffic):
            total.add(part)
        return total

    def join(self, seconds: float = FAREWELL) -> None:
        """Waits for the thread to end, which it does soon after its processes have."""
        self._thread.join(seconds)

    # -- for the interpreter -------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def post(self, post: Post) -> None:
        if post.to == self._group.me:
            self.door.hand_out(Mail(post.to, post.note, post.array))
        else:
            request = self._letters.send(post)
            if post.process == FAULTS:
                self._faults.append(request)

    def after(self, seconds: float, ring: Callable[[], None]) -> CallOff:
        alarm = [ring]
        heapq.heappush(self._alarms, (time.monotonic() + seconds, next(self._sequence), alarm))
        return alarm.clear

    def compute(self, seconds: float, done: Callable[[], None]) -> None:
        raise TypeError("on real ranks processes do not compute: training does")

    def begin(self, join: Join, done: Done) -> CallOff:
        part = among(join.members, join.collective)
        self._task = Task(self._collectives, part, self._timeout, f"{join.name}", join.number)
        self._done = done
        return self._call_off

    def _call_off(self) -> None:
        if self._task is not None:
            self._task.call_off()
            self._forget_task(self._task)

    def _forget_task(self, task: Task[Any]) -> None:
        self._reduced.add(task.traffic)
        self._task = None

    def meet(self, done: Callable[[], None]) -> None:
        self._meeting = _Meeting(self._group.size, self._group.me, self._closing, self._timeout, self._name, done)

    def fail(self, error: BaseException) -> None:
        self.door.tell_failed(error)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = Backoff()
        try:
            self._guarded(self._rank.start)
            while not (self._rank.ended or self._rank.error):
                if self._guarded(self._advance):
                    pause.reset()
                else:
                    pause(() if self._letters.transfers or self._is_receiving() else self._ringers)
            if self._rank.error is not None:
                self._let_be_heard()
        finally:
            self.door.close()

    def _guarded(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except MPI.Exception as error:
            self._rank.fail(as_peer_error(error, self._group, self._name))
        except BaseException as error:
            self._rank.fail(error)
        return True

    def _advance(self) -> bool:
        """Moves what can be moved. True if anything has."""
        moved = self._take_in()
        for process, mail in self._letters.come():
            moved = True
            self._rank.deliver(process, mail)
        moved |= self._advance_task() | self._ring()
        self._letters.sweep()
        if self._meeting is not None and not self._rank.ended:
            moved |= self._meeting.advance(self._letters, self._collectives)
        return moved

    def _take_in(self) -> bool:
        """From training."""
        moved = False
        for item in self.door.come():
            moved = True
            if isinstance(item, Failed):
                self._rank.fail(item.error)
            elif isinstance(item, Looks):
                item.answer.put(item.at())
            else:
                self._rank.deliver(*item)
        return moved

    def _advance_task(self) -> bool:
        task, done = self._task, self._done
        if task is None or done is None:
            return False
        moved = task.advance()
        if task.done:
            self._forget_task(task)
            done(task.wait())
        return moved

    def _is_receiving(self) -> bool:
        return self._task is not None and not self._task.awaits_bell

    def _ring(self) -> bool:
        moved = False
        while self._alarms and (not self._alarms[0][2] or self._alarms[0][0] <= time.monotonic()):
            *_, alarm = heapq.heappop(self._alarms)
            for ring in list(alarm):  # none, if it was called off
                moved = True
                ring()
        return moved

    def _let_be_heard(self) -> None:
        """Until the others have been told of the fault."""
        deadline = time.monotonic() + _FAULT_TAKES
        while time.monotonic() < deadline:
            try:
                if all(request.Test() for request in self._faults):
                    return
            except MPI.Exception:
                return
            time.sleep(1e-4)


class _Meeting:
    """Nothing is left in flight, here or elsewhere. Collectives that were called off have left messages behind."""

    def __init__(
        self, size: int, me: int, channel: Channel, timeout: float, name: str, done: Callable[[], None]
    ) -> None:
        self._task = Task(channel, _barrier(size, me), timeout, f"{name}'s end")
        self._done, self._name = done, name
        self._deadline = time.monotonic() + timeout

    def advance(self, letters: Letters, collectives: Channel) -> bool:
        collectives.drain()
        if not (collectives.sweep() & letters.sweep()):
            if time.monotonic() > self._deadline:
                raise PeerTimeout(f"{self._name}: a rank has not taken what was sent to it", ranks=())
            return False
        moved = self._task.advance()
        if self._task.done:
            self._done()
        return moved


def _barrier(size: int, me: int) -> Collective[None]:
    distance = 1
    while distance < size:
        yield Exchange((me + distance) % size, _NOTHING, (me - distance) % size, "barrier")
        distance *= 2
