"""Partial Reduce's worker: a process on every rank that tells when training is ready, and averages with its group."""

from typing import Any, Protocol

from spardl.effects import CALLED_OFF, TRAINING, Collective, Join, Mail, Next, Now, Post, Process
from spardl.protocols.preduce.notes import (
    CONTROLLER,
    Assemble,
    Averaged,
    CallOff,
    Close,
    Dismissed,
    Goodbye,
    Offer,
    Outcome,
    Signal,
    Take,
)


class Part(Protocol):
    """How a rank averages."""

    def average(self, group: Assemble, me: int, offer: Any) -> Collective[Any]:
        """This rank's part among the group's members; peers are positions among them. Leaves ``offer`` alone."""

    def take(self, average: Any) -> Any:
        """The last average counts, on all members. Makes of it what training gets."""


class Worker:
    """Run it with ``run``. ``lead`` is the controller's rank."""

    def __init__(self, me: int, lead: int, part: Part) -> None:
        self._me, self._lead, self._part = me, lead, part
        self._offer: Any = None  # what training has handed in, until it is told what became of it
        self._average: tuple[Assemble, Any] | None = None  # that does not count yet
        self._seconds = 0.0

    def run(self) -> Process[None]:
        while True:
            mail: Mail = yield Next()
            note = mail.note
            if isinstance(note, Dismissed):
                return
            if isinstance(note, Offer):
                self._offer = mail.array
                yield Post(self._lead, CONTROLLER, Signal(note.iteration, note.anchor, note.layout))
            elif isinstance(note, Close):
                yield Post(self._lead, CONTROLLER, Goodbye(note.iteration))
            elif isinstance(note, Assemble):
                yield from self._join(note)
            elif isinstance(note, CallOff):
                self._average = None
            elif isinstance(note, Take):
                yield from self._take()

    def _join(self, group: Assemble) -> Process[None]:
        began = yield Now()
        average = self._part.average(group, self._me, self._offer)
        result = yield Join(group.members, group.number, average, (CallOff,), "Partial Reduce's group")
        self._seconds += (yield Now()) - began
        if result is not CALLED_OFF:
            self._average = (group, result)
            yield Post(self._lead, CONTROLLER, Averaged(group.number))

    def _take(self) -> Process[None]:
        assert self._average is not None, "told to take an average that this rank does not have"
        (group, result), self._average, self._offer = self._average, None, None
        yield Post(self._me, TRAINING, Outcome(group, self._seconds), self._part.take(result))
        self._seconds = 0.0
