"""RNA's protocol as two state machines that ask, as the collectives do: a scheduler on rank 0, a worker on each rank.

A worker tells the scheduler when it has a gradient that no round has taken. As soon as the policy is content with who
is ready, the scheduler says *go*: all who are ready then are the round's members. They reduce among themselves and say
that they are *prepared*; when all are, the scheduler says *commit*, and everyone publishes the round's result, which
those who were absent fetch from one who has it. So nobody waits for a rank that still computes, and yet every rank goes
through every round, once and in order.

Nor does anybody wait long for a rank that has stopped. What the scheduler has waited for in vain it asks for a sign of
life; who gives none is left out until it is heard from again. A round that it was a member of is tried again without:
the others take their reduce back, which is a transaction, and its own gradient still waits when it returns. Then it
finds all notes it has missed, in order, and fetches those rounds' results. Suspecting a rank wrongly costs time only.
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from spardl.effects import Collective
from spardl.sync.notes import Commit, Done, Go, Got, Note, Ping, Prepared, Ready, Stop
from spardl.sync.policies import Policy

SCHEDULER = 0  # the rank that it runs on

Returned = TypeVar("Returned")


# -- what the machines ask for -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a note; resumed at once. Notes between two ranks keep their order."""

    to: int
    note: Note


@dataclass(frozen=True, slots=True)
class Listen:
    """Resumed with ``(sender, note)``; with None when ``until()`` is true, or when nothing came for ``seconds``."""

    until: Callable[[], bool] | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class InRound:
    """Run this rank's part in an attempt at a round. Resumed with its result, or with CALLED_OFF."""

    go: Go
    part: Collective[Any]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Get a round's result from a rank that has it. Resumed with that, or with CALLED_OFF when it is told anew."""

    round: int
    provider: int


class CalledOff:
    """A later note makes what was asked for pointless; the note comes next."""


CALLED_OFF = CalledOff()

Ask: TypeAlias = Tell | Listen | InRound | Fetch
Machine: TypeAlias = Generator[Ask, Any, Returned]


# -- what a worker works with ------------------------------------------------------------------------------------------


class Box(Protocol):
    """Between training, which deposits gradients and picks up results, and the worker."""

    @property
    def ready(self) -> bool:
        """Whether there is a gradient that no round has taken."""

    @property
    def closed(self) -> bool:
        """Whether no more will be deposited."""

    def take(self, round: int) -> Any:
        """What waits, combined, to contribute to a round. It goes on waiting until it is published as contributed."""

    @property
    def shift(self) -> Any:
        """By what the weights shall move, if anything waits; on the scheduler's rank only."""

    def publish(self, round: int, result: Any, terms: str, contributed: bool) -> None:
        """What came of a round. Called for every round, in order."""


class Part(Protocol):
    """How a rank reduces."""

    def contribute(self, rank: int, go: Go, contribution: Any) -> Collective[Any]:
        """This rank's reduce among the round's members; peers are ranks."""

    def undo(self) -> None:
        """Takes the last reduce back."""


# -- the worker --------------------------------------------------------------------------------------------------------


def worker(rank: int, box: Box, part: Part) -> Machine[int]:
    """Goes through all rounds; returns how many there were."""
    told: Ready | Done | None = None  # the last, but for gradients that were reduced since
    prepared: tuple[Go, Any] | None = None  # an attempt that is neither committed nor called off, and its result
    next_round = 0
    while True:
        if (news := _news(box, told)) is not None:
            told = news
            yield Tell(SCHEDULER, news)
        heard = yield Listen(partial(_has_news, box, told))
        if heard is None:
            continue
        _, note = heard
        if isinstance(note, Stop):
            return next_round
        if isinstance(note, Go):
            if prepared is not None and not prepared[0].shift:
                part.undo()
            prepared = None
            if note.shift and rank in note.members:
                prepared = (note, box.shift)
                yield Tell(SCHEDULER, Prepared(note.number))
            elif rank in note.members:
                result = yield InRound(note, part.contribute(rank, note, box.take(note.round)))
                if result is not CALLED_OFF:
                    prepared = (note, result)
                    yield Tell(SCHEDULER, Prepared(note.number))
        elif isinstance(note, Commit) and note.round == next_round:
            if prepared is not None:
                result = prepared[1]
            else:
                result = yield Fetch(note.round, note.provider(rank))
                if result is CALLED_OFF:
                    continue
            contributed = prepared is not None and not prepared[0].shift
            prepared = None
            told = None if contributed else told
            box.publish(note.round, result, note.terms, contributed)
            next_round += 1
            yield Tell(SCHEDULER, Got(note.round))


def _news(box: Box, told: Ready | Done | None) -> Ready | Done | None:
    """Done only when nothing waits: a gradient that came during a round is still to be announced."""
    news = Ready() if box.ready else Done() if box.closed else None
    return None if news == told else news


def _has_news(box: Box, told: Ready | Done | None) -> bool:
    return _news(box, told) is not None


# -- the scheduler -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scheduler:
    """Begins rounds until all ranks are done and nothing is left. Run it with ``run``."""

    ranks: int
    policy: Policy
    patience: float = 1.0  # seconds to wait for a rank before asking for a sign of life, and then for that
    terms: Callable[[], str] = str  # what goes along with every commit
    has_shift: Callable[[], bool] = bool  # whether there is a shift of the weights to bring about
    round: int = 0
    _number: int = 0  # of the attempt: no two have the same
    _ready: set[int] = field(default_factory=set)
    _working: set[int] = field(default_factory=set)
    _silent: set[int] = field(default_factory=set)
    _kept: dict[int, list[Note]] = field(default_factory=dict)  # for silent ranks: MPI's buffers would fill up
    _prepared: set[int] = field(default_factory=set)
    _got: dict[int, int] = field(default_factory=dict)  # the last round of which a rank has the result

    def run(self) -> Machine[int]:
        """Returns how many rounds there were."""
        self._working = set(range(self.ranks))
        self._got = dict.fromkeys(range(self.ranks), -1)
        # Who is silent has to come back: it could not be told of the end, either.
        while self._working or self._ready or self._silent or min(self._got.values()) < self.round - 1:
            able = self._ready - self._silent
            if self._can_shift():
                yield from self._round({SCHEDULER}, shift=True)
            elif not able or not self.policy.begins(self.round, able, self._working - self._silent):
                yield from self._listen(until=self._can_shift)
            else:
                yield from self._round(able)
        yield from self._tell_all(Stop(self.round))
        return self.round

    def _can_shift(self) -> bool:
        return SCHEDULER not in self._silent and self.has_shift()

    def _round(self, able: set[int], shift: bool = False) -> Machine[None]:
        members = yield from self._reduce(able, shift)
        if members is not None:
            if not shift:
                self._ready -= members
            yield from self._commit(members)
            self.round += 1

    def _reduce(self, members: set[int], shift: bool) -> Machine[set[int] | None]:
        """Tries until all members are prepared; None if none is left."""
        while members:
            self._number += 1
            self._prepared = set()
            needed_from = min(self._got.values()) + 1
            yield from self._tell_all(Go(self.round, self._number, tuple(sorted(members)), needed_from, shift))
            lost = yield from self._wait_for(partial(self._unprepared, members), members)
            if not lost:
                return members
            members = members - lost
        # Nobody is in this round any more. The next attempt at it makes up for what was told.
        return None

    def _commit(self, members: set[int]) -> Machine[None]:
        """Until all but the silent have the result."""
        has = members
        terms = self.terms()
        while True:
            yield from self._tell_all(Commit(self.round, tuple(sorted(has)), terms))
            if not (yield from self._wait_for(self._without_result, has)):
                return
            # Some who have it are silent. If there are no others, one of them has to come back first.
            while not (has := (members | self._holders()) - self._silent):
                yield from self._listen()

    def _holders(self) -> set[int]:
        return {rank for rank, got in self._got.items() if got >= self.round}

    def _unprepared(self, members: set[int]) -> set[int]:
        return members - self._prepared

    def _without_result(self) -> set[int]:
        return {rank for rank, got in self._got.items() if got < self.round} - self._silent

    def _wait_for(self, missing: Callable[[], set[int]], needed: set[int]) -> Machine[set[int]]:
        """Until nothing is missing, or one of those who are ``needed`` for that is silent: returns these."""
        while missing():
            if (yield from self._listen(self.patience)) is not None:
                continue
            asked = missing() | needed
            yield from self._tell_all(Ping(), asked)
            while asked and missing() and (heard := (yield from self._listen(self.patience))) is not None:
                asked.discard(heard)
            if missing():
                self._silent |= asked
                if lost := asked & needed:
                    return lost
        return set()

    def _listen(self, seconds: float | None = None, until: Callable[[], bool] | None = None) -> Machine[int | None]:
        """Takes one note in; who sent it, or None if nothing came."""
        heard = yield Listen(until, seconds)
        if heard is None:
            return None
        sender, note = heard
        self._silent.discard(sender)
        for kept in self._kept.pop(sender, []):
            yield Tell(sender, kept)
        if isinstance(note, Ready):
            self._ready.add(sender)
        elif isinstance(note, Done):
            self._working.discard(sender)
        elif isinstance(note, Prepared) and note.number == self._number:
            self._prepared.add(sender)
        elif isinstance(note, Got):
            self._got[sender] = note.round
        return int(sender)

    def _tell_all(self, note: Note, ranks: Iterable[int] | None = None) -> Machine[None]:
        for rank in range(self.ranks) if ranks is None else sorted(ranks):
            if rank in self._silent:
                self._kept.setdefault(rank, []).append(note)
            else:
                yield Tell(rank, note)
