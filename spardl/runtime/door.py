"""Between training, in the user's thread, and the thread that runs its rank's processes: a queue each way.

Nothing else is shared between the two.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from spardl.effects import Compute, Join, Mail, Next, Now, Post, Process
from spardl.runtime.bell import my_bell

Result = TypeVar("Result")
Seen = TypeVar("Seen")


class Failed(NamedTuple):
    """In either direction: this side cannot go on."""

    error: BaseException


class Looks(NamedTuple):
    """From training: what does ``at`` return, at a moment when no process is under way?"""

    at: Callable[[], Any]
    answer: "queue.SimpleQueue[Any]"


class Door:
    """One rank's."""

    def __init__(self, me: int) -> None:
        self._me = me
        self._inward: queue.SimpleQueue[tuple[str, Mail] | Failed | Looks] = queue.SimpleQueue()
        self._outward: queue.SimpleQueue[Mail | Failed] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._closed = threading.Event()  # nobody takes from the inward queue any more

    # -- training's side -----------------------------------------------------------------------------------------------

    def drive(self, process: Process[Result]) -> Result:
        """Runs a part of training to its end, waiting where it waits; raises what has gone wrong on any rank."""
        answer: Any = None
        while True:
            try:
                ask = process.send(answer)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            answer = None
            self._raise()
            if isinstance(ask, Post):
                self._put((ask.process, Mail(self._me, ask.note, ask.array)))
            elif isinstance(ask, Next):
                answer = self._next(ask.seconds)
            elif isinstance(ask, Now):
                answer = time.monotonic()
            else:
                assert not isinstance(ask, Join | Compute)

    @property
    def error(self) -> BaseException | None:
        """What has gone wrong, as far as training knows."""
        return self._error

    def fail(self, error: BaseException) -> None:
        """Training cannot go on, and neither can any process of any rank."""
        self._error = self._error or error
        self._put(Failed(error))

    def look(self, at: Callable[[], Seen]) -> Seen:
        """What ``at`` returns at a moment when no process is under way."""
        answer: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._put(Looks(at, answer))
        while not self._closed.is_set():
            try:
                return answer.get(timeout=0.1)
            except queue.Empty:
                continue
        return answer.get() if not answer.empty() else at()  # nobody is at work on the other side

    def _put(self, item: tuple[str, Mail] | Failed | Looks) -> None:
        self._inward.put(item)
        if (bell := my_bell()) is not None:
            bell.ring(bell.name)

    def _next(self, seconds: float | None) -> Mail | None:
        try:
            found = self._outward.get_nowait() if seconds == 0 else self._outward.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, Failed):
            self._error = self._error or found.error
            self._raise()
            raise AssertionError
        return found

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # -- the other side ------------------------------------------------------------------------------------------------

    def come(self) -> Iterator[tuple[str, Mail] | Failed | Looks]:
        """What training has put in."""
        while not self._inward.empty():
            yield self._inward.get_nowait()

    def hand_out(self, mail: Mail) -> None:
        self._outward.put(mail)

    def tell_failed(self, error: BaseException) -> None:
        self._outward.put(Failed(error))

    def close(self) -> None:
        """Nobody is on this side any more."""
        self._closed.set()
        for item in self.come():
            if isinstance(item, Looks):
                item.answer.put(item.at())
