"""RNA's worker: a process on every rank that takes part in rounds and publishes their results."""

from collections import deque
from typing import Any, Protocol

from spardl.effects import CALLED_OFF, TRAINING, Bytes, Collective, Join, Mail, Next, Now, Post, Process
from spardl.protocols.results import RESULTS, Forget, Keep, Result, Want
from spardl.protocols.rna.notes import (
    LEAD,
    SCHEDULER,
    WORKER,
    Close,
    Commit,
    Done,
    Go,
    Got,
    Gradient,
    HasShift,
    Offer,
    Prepared,
    Published,
    Ready,
    RoundsEnded,
    Stop,
)
from spardl.protocols.rna.waiting import Waiting


class Part(Protocol):
    """How a rank reduces."""

    def contribute(self, members: tuple[int, ...], rank: int, contribution: Any) -> Collective[Any]:
        """This rank's reduce among the round's members; peers are positions among them."""

    def undo(self) -> None:
        """Takes the last reduce back."""

    def write(self, result: Any) -> tuple[str, Bytes]:
        """A result's kind, and its bytes."""

    def read(self, kind: str, message: Bytes) -> Any:
        """What was written. Raises WireError for bytes that are no result."""


class Worker:
    """Goes through all rounds. Run it with ``run``. ``lead`` is the scheduler's rank."""

    def __init__(self, me: int, lead: int, waiting: Waiting, part: Part) -> None:
        self._me, self._lead, self._waiting, self._part = me, lead, waiting, part
        self._closed = False  # no more gradients will come
        self._told: Ready | Done | None = None  # the last, but for gradients that were reduced since
        self._shift: Any = None  # waits for a round that brings it to the whole group
        self._prepared: tuple[Go, Any] | None = None  # an attempt neither committed nor called off, and its result
        self._next_round = 0
        self._later: deque[Mail] = deque()  # what came while a result was fetched
        self._seconds = 0.0  # in rounds and fetching, since the last time this was told

    def run(self) -> Process[int]:
        """Returns how many rounds there were."""
        while True:
            yield from self._tell_news()
            mail: Mail = self._later.popleft() if self._later else (yield Next())
            if isinstance(mail.note, Stop):
                yield Post(self._me, LEAD, RoundsEnded())
                return self._next_round
            if isinstance(mail.note, Go):
                yield from self._timed(self._attempt(mail.note))
            elif isinstance(mail.note, Commit):
                if mail.note.round == self._next_round:
                    yield from self._commit(mail.note)
            else:
                yield from self._take_in(mail)

    def _tell_news(self) -> Process[None]:
        """Done only when nothing waits: a gradient that came during a round is still to be announced."""
        news = Ready() if self._waiting else Done() if self._closed else None
        if news is not None and news != self._told:
            self._told = news
            yield Post(self._lead, SCHEDULER, news)

    def _take_in(self, mail: Mail) -> Process[None]:
        """What comes from this rank itself."""
        if isinstance(mail.note, Gradient):
            self._waiting.add(mail.note.version, mail.array)
        elif isinstance(mail.note, Close):
            self._closed = True
        elif isinstance(mail.note, Offer) and self._shift is None:  # or one waits, which this knows nothing of
            self._shift = mail.array
            yield Post(self._lead, SCHEDULER, HasShift())

    def _attempt(self, go: Go) -> Process[None]:
        yield Post(self._me, RESULTS, Forget(go.needed_from))
        if self._prepared is not None and not self._prepared[0].shift:
            self._part.undo()
        self._prepared = None
        if self._me not in go.members:
            return
        if go.shift:
            result = self._shift
        elif any(isinstance(mail.note, Go) for mail in self._later):
            return  # the others have gone on to another attempt
        else:
            reduce = self._part.contribute(go.members, self._me, self._waiting.take(go.round))
            result = yield Join(go.members, go.number, reduce, (Go,), f"RNA's round {go.round}, attempt")
        if result is not CALLED_OFF:
            self._prepared = (go, result)
            yield Post(self._lead, SCHEDULER, Prepared(go.number))

    def _commit(self, commit: Commit) -> Process[None]:
        contributed = False
        if self._prepared is not None:
            go, result = self._prepared
            contributed = not go.shift
            self._prepared = None
        else:
            result = yield from self._timed(self._fetch(commit))
        ages: tuple[int, ...] = ()
        if contributed:
            self._told = None
            ages = self._waiting.let_go(commit.round)
        if result is self._shift:
            self._shift = None
        self._next_round += 1
        yield Post(self._me, RESULTS, Keep(commit.round), result)
        yield Post(
            self._me, TRAINING, Published(commit.terms, ages, self._waiting.tell_dropped(), self._seconds), result
        )
        self._seconds = 0.0
        yield Post(self._lead, SCHEDULER, Got(commit.round))

    def _fetch(self, commit: Commit) -> Process[Any]:
        """The round's result from a rank that has it; from another, if that one falls silent."""
        again = [mail.note for mail in self._later if isinstance(mail.note, Commit)]
        commit = next((told for told in reversed(again) if told.round == commit.round), commit)
        yield Post(commit.provider(self._me), RESULTS, Want(commit.round, WORKER))
        while True:
            mail: Mail = yield Next()
            note = mail.note
            if isinstance(note, Result):
                if note.round == commit.round:
                    return self._part.read(note.kind, mail.array)
            elif isinstance(note, Commit) and note.round == commit.round:
                yield Post(note.provider(self._me), RESULTS, Want(commit.round, WORKER))
            else:
                self._later.append(mail)

    def _timed(self, part: Process[Any]) -> Process[Any]:
        began = yield Now()
        result = yield from part
        self._seconds += (yield Now()) - began
        return result
