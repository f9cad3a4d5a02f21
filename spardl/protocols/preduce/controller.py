"""Partial Reduce's controller: a process on one rank that makes groups of workers that are ready.

Workers send it their *signals*, which wait in a queue. As soon as there are enough, a filter picks a group, weights are
made for its members, and all of that is broadcast to them. They average their models among themselves, no weights pass
through here, and tell when they have the *average*. When all do, the controller tells them to *take* it. Any number of
groups are under way at once.

Nobody waits long for a rank that has stopped. What the controller has waited for in vain it asks for a sign of life;
who gives none is left out until it is heard from again. A group that it was to be in is called off: the others keep
their models, and their places in the queue. Suspecting a rank wrongly costs time only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spardl.effects import Mail, Next, Now, Process
from spardl.notes import Note
from spardl.protocols.liveness import PULSE, Correspondence, Ping
from spardl.protocols.preduce.group_filter import GroupFilter, Hold
from spardl.protocols.preduce.group_size import GroupSize
from spardl.protocols.preduce.history import GroupHistory, default_window
from spardl.protocols.preduce.notes import (
    CONTROLLER,
    WORKER,
    Assemble,
    Averaged,
    CallOff,
    Dismissed,
    Goodbye,
    Signal,
    Take,
)
from spardl.protocols.preduce.settings import Settings
from spardl.protocols.preduce.signal_queue import Queued, SignalQueue
from spardl.protocols.preduce.step_times import StepTimes
from spardl.protocols.preduce.sync_graph import SyncGraph
from spardl.protocols.preduce.weights import Constant


@dataclass(slots=True)
class _Group:
    """One that is averaging."""

    number: int
    taken: list[Queued]
    everyone: bool
    deadline: float  # then those who have not finished are asked for a sign of life
    finished: set[int] = field(default_factory=set)

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(queued.rank for queued in self.taken))

    @property
    def missing(self) -> set[int]:
        return set(self.members) - self.finished


class Controller:
    """For ranks 0 to N−1. Run it with ``run``. ``history``: of groups before, which it goes on with."""

    def __init__(self, ranks: int, settings: Settings, history: GroupHistory | None = None) -> None:
        self._ranks, self._settings = ranks, settings
        self._times = StepTimes(ranks)
        self._size = GroupSize(settings.group, ranks, self._times)
        self._history = history or GroupHistory(ranks)
        self._history.set_window(self._window())
        self._filter = GroupFilter(self._history, self._times, active=settings.filtered)
        self._queue = SignalQueue()
        self._groups: dict[int, _Group] = {}  # under way, by number
        self._number = 0  # of the last: no two have the same
        self._since_global = 0  # groups
        self._anchor = 0  # the number of the last average of all
        self._present = set(range(ranks))  # who has not said goodbye
        self._gone_at = 0  # the most iterations that somebody has seen who has
        self._correspondence = Correspondence()
        self._asked: dict[int, float] = {}  # for a sign of life, until when
        self._look_at_queue: float | None = None  # for how long it has been waited for signals
        self._hold: float | None = None
        self._now = 0.0

    @property
    def graph(self) -> SyncGraph:
        return self._history.graph

    def run(self) -> Process[SyncGraph]:
        """Until everyone has said goodbye: who is silent has to come back, since it could not be told of the end."""
        self._now = yield Now()
        while self._present:
            yield from self._make_groups()
            mail = yield Next(self._seconds_to_wait())
            self._now = yield Now()
            if mail is not None:
                yield from self._take_in(mail)
            yield from self._look_for_the_silent()
        for rank in range(self._ranks):
            yield from self._correspondence.tell(rank, WORKER, Dismissed())
        return self.graph

    def _take_in(self, mail: Mail) -> Process[None]:
        sender, note = mail.sender, mail.note
        self._asked.pop(sender, None)
        if (yield from self._correspondence.hear_from(sender)):
            self._queue.come_back(sender)
        if isinstance(note, Signal):
            self._times.signal(sender, self._now)
            self._queue.add(sender, note, self._now)
        elif isinstance(note, Averaged):
            yield from self._finish(sender, note.number)
        elif isinstance(note, Goodbye):
            self._present.discard(sender)
            self._times.forget(sender)
            self._gone_at = max(self._gone_at, note.iteration)

    # -- groups --------------------------------------------------------------------------------------------------------

    @property
    def _living(self) -> set[int]:
        return self._present - self._correspondence.silent

    def _make_groups(self) -> Process[None]:
        """All that can be made now."""
        self._hold = None
        while 0 < (size := self._wanted()) <= len(self._queue):
            chosen = self._filter.choose(self._queue, size, self._now)
            if isinstance(chosen, Hold):
                self._hold = chosen.until
                break
            yield from self._assemble(chosen, everyone=self._global_is_due)
        if not len(self._queue):
            self._look_at_queue = None
        elif self._look_at_queue is None:
            self._look_at_queue = self._now + self._settings.patience

    def _wanted(self) -> int:
        """How many the next group has to have: fewer than asked for only if fewer can still come."""
        living = len(self._living)
        return living if self._global_is_due else min(self._size.now, living)

    @property
    def _global_is_due(self) -> bool:
        """After so many groups, or if somebody who was silent does not know the last average of all."""
        every = self._settings.global_every
        return every is not None and (
            self._since_global + len(self._groups) >= every
            or any(queued.signal.anchor != self._anchor for queued in self._queue)
        )

    def _assemble(self, ranks: list[int], everyone: bool) -> Process[None]:
        taken = self._queue.take(sorted(ranks))
        _require_same_layout(taken)
        self._number += 1
        self._look_at_queue = None
        self._groups[self._number] = _Group(self._number, taken, everyone, self._now + self._settings.patience)
        iterations = [queued.signal.iteration for queued in taken]
        latest = max(iterations)
        generator = Constant() if everyone else self._settings.weights
        members = tuple(queued.rank for queued in taken)
        freshest = members[iterations.index(latest)]
        last = max(taken, key=lambda queued: queued.place).rank
        if len(members) == 1:  # those who could have told it are gone
            latest = max(latest, self._gone_at)
        for rank, share in zip(members, generator.shares(iterations), strict=True):
            note = Assemble(self._number, members, share, latest, freshest, last, everyone)
            yield from self._correspondence.tell(rank, WORKER, note)

    def _finish(self, rank: int, number: int) -> Process[None]:
        """A member has the average; the last that had to have it makes it count."""
        if (group := self._groups.get(number)) is None:
            return  # it was called off
        group.finished.add(rank)
        group.deadline = self._now + self._settings.patience
        if group.missing:
            return
        del self._groups[number]
        self._history.add(group.members)
        self._since_global = 0 if group.everyone else self._since_global + 1
        if group.everyone:
            self._anchor = number
        for member in group.members:
            self._times.release(member, self._now)
            yield from self._correspondence.tell(member, WORKER, Take(number))
        if self._size.look_again(self.graph.groups, self._living):
            self._history.set_window(self._window())

    def _window(self) -> int:
        return self._settings.window or default_window(self._ranks, self._size.now)

    # -- who is there --------------------------------------------------------------------------------------------------

    def _seconds_to_wait(self) -> float | None:
        alarms = [*self._asked.values(), *(group.deadline for group in self._groups.values())]
        alarms += [alarm for alarm in (self._hold, self._look_at_queue) if alarm is not None]
        return max(0.0, min(alarms) - self._now) if alarms else None

    def _look_for_the_silent(self) -> Process[None]:
        """Asks those who are waited for; whose time to answer is over, is left out."""
        silent = [rank for rank, until in self._asked.items() if until <= self._now]
        for group in self._groups.values():
            if group.deadline <= self._now:
                group.deadline = self._now + self._settings.patience
                yield from self._ask(group.missing)
        if self._look_at_queue is not None and self._look_at_queue <= self._now:
            self._look_at_queue = self._now + self._settings.patience
            busy = {rank for group in self._groups.values() for rank in group.members}
            yield from self._ask(rank for rank in self._living if rank not in self._queue and rank not in busy)
        for rank in silent:
            yield from self._leave_out(rank)

    def _ask(self, ranks: Iterable[int]) -> Process[None]:
        for rank in sorted(ranks):
            if rank not in self._asked and rank not in self._correspondence.silent:
                self._asked[rank] = self._now + self._settings.patience
                yield from self._correspondence.tell(rank, PULSE, Ping(CONTROLLER))

    def _leave_out(self, rank: int) -> Process[None]:
        del self._asked[rank]
        self._correspondence.silent.add(rank)
        for group in list(self._groups.values()):
            if rank in group.missing:
                del self._groups[group.number]
                yield from self._tell_all(group.members, CallOff(group.number))
                self._queue.put_back(group.taken)
                for member in group.members:
                    if member in self._correspondence.silent:
                        self._queue.set_aside(member)

    def _tell_all(self, ranks: Iterable[int], note: Note) -> Process[None]:
        for rank in ranks:
            yield from self._correspondence.tell(rank, WORKER, note)


def _require_same_layout(taken: list[Queued]) -> None:
    first = taken[0]
    for other in taken:
        if other.signal.layout != first.signal.layout:
            told: dict[str, Any] = {f"rank {one.rank}": one.signal.layout for one in (first, other)}
            raise ValueError(
                "Partial Reduce: what travels with the weights differs between ranks: "
                + ", ".join(f"{layout!r} on {rank}" for rank, layout in told.items())
                + ". Do all ranks use the same optimizer, and has each parameter a gradient on all of them?"
            )
