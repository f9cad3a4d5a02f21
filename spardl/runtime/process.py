"""Runs the processes of one rank, whatever carries their mail: MPI, or ranks in this process with or without a clock.

What a carrier has to offer is small: it hands mail over, tells the time, rings alarms and drives collectives. It calls
``deliver`` when something has come. An exception that no process catches ends all of them, on all ranks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from spardl.effects import CALLED_OFF, TRAINING, Ask, Compute, Join, Mail, Next, Now, Post, Process
from spardl.errors import from_notice, to_notice
from spardl.notes import Note

Done = Callable[[Any], None]
CallOff = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fault(Note):
    """From a rank that cannot go on: neither can the others."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """To training: all processes of all ranks have come to their end."""


FAULTS = "faults"  # as if there were a process of this name on every rank


class Carrier(Protocol):
    """For one rank."""

    def now(self) -> float: ...

    def post(self, post: Post) -> None:
        """To another rank, or to training."""

    def after(self, seconds: float, ring: Callable[[], None]) -> CallOff:
        """Calls ``ring`` then, unless that is called off."""

    def compute(self, seconds: float, done: Callable[[], None]) -> None:
        """The same for what takes this rank time."""

    def begin(self, join: Join, done: Done) -> CallOff:
        """Drives this rank's part in a collective, and calls ``done`` with its result, unless it is called off."""

    def meet(self, done: Callable[[], None]) -> None:
        """Calls ``done`` when all ranks have come to this, and nothing is on its way any more."""

    def fail(self, error: BaseException) -> None:
        """All processes of this rank have ended by this error."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a rank runs.

    ``services`` serve other ranks' processes: they run until the ``processes`` of all ranks have ended. ``training``
    talks to processes of its own rank only; on real ranks it is the user's thread.
    """

    processes: Mapping[str, Process[Any]]
    services: Mapping[str, Process[Any]] = field(default_factory=dict)
    training: Process[Any] | None = None


class Rank:
    """One rank's processes, or its training alone. ``ranks`` hear of it if one fails."""

    def __init__(self, me: int, ranks: Iterable[int], program: Program, carrier: Carrier) -> None:
        self._me, self._others, self._carrier = me, [rank for rank in ranks if rank != me], carrier
        everyone = {**program.processes, **program.services}
        self._running = {name: _Running(name, generator) for name, generator in everyone.items()}
        self._is_training = TRAINING in everyone
        self._left = set(program.processes)  # to end before this rank meets the others
        self._able: deque[tuple[_Running, Any]] = deque()  # what can be resumed, and with what
        self._resuming = False
        self.ended = False
        self.error: BaseException | None = None
        self.results: dict[str, Any] = {}

    def start(self) -> None:
        if not self._left:
            self._carrier.meet(self._end)
        self._able.extend((running, None) for running in self._running.values())
        self._resume_all()

    def deliver(self, process: str, mail: Mail) -> None:
        """Mail has come for a process; for one that has ended it is thrown away."""
        if process == FAULTS:
            self.fail(from_notice(mail.note.text.encode(), mail.sender), tell=False)
            return
        self._hand_over(process, mail)
        self._resume_all()

    def fail(self, error: BaseException, *, tell: bool = True) -> None:
        """Ends all processes; ``tell``: the other ranks do not know."""
        if self.ended or self.error is not None:
            return
        self.error = error
        self.close()
        if tell:
            note = Fault(to_notice(error).decode())
            for rank in self._others:
                self._carrier.post(Post(rank, FAULTS, note))
        self._carrier.fail(error)

    def interrupt(self, error: BaseException) -> None:
        """Raises in all processes what has gone wrong elsewhere."""
        for running in self._running.values():
            self._go_on(running, _Raise(error))
        self._resume_all()

    def who_waits(self) -> list[str]:
        """For a report of a deadlock: what every process that has not ended waits for."""
        return [f"{name} of rank {self._me} waits for {running.waits_for}" for name, running in self._running.items()]

    # ------------------------------------------------------------------------------------------------------------------

    def _hand_over(self, process: str, mail: Mail) -> None:
        if (running := self._running.get(process)) is None:
            return
        if isinstance(running.ask, Next):
            self._go_on(running, mail)
            return
        running.inbox.append(mail)
        if isinstance(running.ask, Join) and isinstance(mail.note, running.ask.unless):
            self._go_on(running, CALLED_OFF)

    def _go_on(self, running: "_Running", answer: Any) -> None:
        """It waits no more."""
        running.stop_waiting()
        self._able.append((running, answer))

    def _resume_all(self) -> None:
        """Until no process can move. What they hand to each other meanwhile makes others able to."""
        if self._resuming:
            return
        self._resuming = True
        try:
            while self._able and self.error is None:
                running, answer = self._able.popleft()
                try:
                    self._resume(running, answer)
                except Exception as error:
                    self.fail(error)
        finally:
            self._resuming = False

    def _resume(self, running: "_Running", answer: Any) -> None:
        while True:
            try:
                ask = running.resume(answer)
            except StopIteration as stop:
                self._has_ended(running, stop.value)
                return
            answer = None
            if isinstance(ask, Post):
                self._post(ask)
            elif isinstance(ask, Now):
                answer = self._carrier.now()
            elif isinstance(ask, Next) and (running.inbox or ask.seconds == 0):
                answer = running.inbox.popleft() if running.inbox else None
            elif isinstance(ask, Join) and any(isinstance(mail.note, ask.unless) for mail in running.inbox):
                ask.collective.close()
                answer = CALLED_OFF
            else:
                self._wait(running, ask)
                return

    def _post(self, post: Post) -> None:
        if post.to == self._me and post.process != TRAINING and not self._is_training:
            self._hand_over(post.process, Mail(self._me, post.note, post.array))
        else:
            self._carrier.post(post)

    def _wait(self, running: "_Running", ask: Next | Join | Compute) -> None:
        running.ask = ask
        if isinstance(ask, Join):
            running.call_off = self._carrier.begin(ask, lambda result: self._answer(running, ask, result))
        elif isinstance(ask, Compute):
            self._carrier.compute(ask.seconds, lambda: self._answer(running, ask, None))
        elif ask.seconds is not None:
            running.call_off = self._carrier.after(ask.seconds, lambda: self._answer(running, ask, None))

    def _answer(self, running: "_Running", ask: Next | Join | Compute, answer: Any) -> None:
        if running.ask is ask:
            running.call_off = None
            self._go_on(running, answer)
            self._resume_all()

    def _has_ended(self, running: "_Running", result: Any) -> None:
        self.results[running.name] = result
        del self._running[running.name]
        if running.name in self._left:
            self._left.discard(running.name)
            if not self._left:
                self._carrier.meet(self._end)

    def _end(self) -> None:
        if self.error is None:
            self.ended = True
            self.close()
            self._carrier.post(Post(self._me, TRAINING, Ended()))

    def close(self) -> None:
        for running in self._running.values():
            running.stop_waiting()
            with suppress(ValueError):  # the one that is running: it has just posted
                running.generator.close()
        self._running.clear()
        self._able.clear()


class _Raise(NamedTuple):
    """In place of an answer."""

    error: BaseException


class _Running:
    """A process, what it asks for, and the mail that has come for it."""

    __slots__ = ("ask", "call_off", "generator", "inbox", "name")

    def __init__(self, name: str, generator: Process[Any]) -> None:
        self.name, self.generator = name, generator
        self.inbox: deque[Mail] = deque()
        self.ask: Next | Join | Compute | None = None
        self.call_off: CallOff | None = None

    def resume(self, answer: Any) -> Ask:
        return self.generator.throw(answer.error) if isinstance(answer, _Raise) else self.generator.send(answer)

    def stop_waiting(self) -> None:
        self.ask = None
        if self.call_off is not None:
            self.call_off()
            self.call_off = None

    @property
    def waits_for(self) -> str:
        if isinstance(self.ask, Join):
            return f"{self.ask.name} {self.ask.number} among ranks {', '.join(map(str, self.ask.members))}"
        if isinstance(self.ask, Compute):
            return f"the end of {self.ask.seconds:g} s of computing"
        return "mail" if self.ask is None or self.ask.seconds is None else f"mail, for {self.ask.seconds:g} s"
