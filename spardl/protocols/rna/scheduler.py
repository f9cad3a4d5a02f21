"""RNA's scheduler: a process on one rank of a group that begins rounds and sees them through.

A worker tells it when it has a gradient that no round has taken. As soon as the policy is content with who is ready,
the scheduler says *go*: all who are ready then are the round's members. They reduce among themselves and say that they
are *prepared*; when all are, the scheduler says *commit*, and everyone publishes the round's result, which those who
were absent fetch from one who has it. So nobody waits for a rank that still computes, and yet every rank goes through
every round, once and in order.

Nor does anybody wait long for a rank that has stopped. What the scheduler has waited for in vain it asks for a sign of
life; who gives none is left out until it is heard from again. A round that it was a member of is tried again without:
the others take their reduce back, which is a transaction, and its own gradient still waits when it returns. Then it
finds all notes it has missed, in order, and fetches those rounds' results. Suspecting a rank wrongly costs time only.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spardl.effects import Next, Process
from spardl.notes import Note
from spardl.protocols.liveness import PULSE, Correspondence, Ping
from spardl.protocols.rna.notes import (
    SCHEDULER,
    WORKER,
    Commit,
    Done,
    Go,
    Got,
    HasShift,
    Prepared,
    Ready,
    Stop,
    Terms,
)
from spardl.protocols.rna.policies import Policy
from spardl.protocols.rna.roster import Roster


class Scheduler:
    """Begins rounds until all ranks are done and nothing is left. Run it with ``run``, on the first of its ranks.

    ``patience``: seconds to wait for a rank before asking for a sign of life, and then for that. ``terms``: what goes
    along with every commit, until training tells others. Taking in a note costs the same for any number of ranks.
    """

    def __init__(self, ranks: Sequence[int], policy: Policy, patience: float = 1.0, terms: str = "") -> None:
        self._ranks, self._lead, self._policy, self._patience = tuple(ranks), ranks[0], policy, patience
        self._terms, self._has_shift = terms, False
        self._round = 0
        self._number = 0  # of the attempt: no two have the same
        self._members: set[int] = set()  # of the attempt
        self._prepared: set[int] = set()
        self._correspondence = Correspondence()
        self._attendance = _Attendance(ranks, self._correspondence.silent)
        self._progress = _Progress(ranks)

    def run(self) -> Process[int]:
        """Returns how many rounds there were."""
        attendance = self._attendance
        # Who is silent has to come back: it could not be told of the end, either.
        while attendance.any_left:
            ready, working = attendance.ready, attendance.working
            if self._has_shift and self._lead not in attendance.silent:
                yield from self._try_round({self._lead}, shift=True)
            elif ready and self._policy.begins(self._round, ready, working):
                yield from self._try_round(set(ready))
            else:
                yield from self._listen()
        yield from self._tell_all(Stop(self._round))
        return self._round

    def _try_round(self, able: set[int], shift: bool = False) -> Process[None]:
        members = yield from self._reduce(able, shift)
        if members is None:
            return
        if shift:
            self._has_shift = False
        else:
            self._attendance.take(members)
        yield from self._commit(members)
        self._round += 1

    def _reduce(self, members: set[int], shift: bool) -> Process[set[int] | None]:
        """Tries until all members are prepared; None if none is left."""
        while members:
            self._number += 1
            self._members, self._prepared = members, set()
            needed_from = self._progress.all_have + 1
            yield from self._tell_all(Go(self._round, self._number, tuple(sorted(members)), needed_from, shift))
            lost = yield from self._wait_for(self._unprepared, members)
            if not lost:
                return members
            members = members - lost
        # Nobody is in this round any more. The next attempt at it makes up for what was told.
        return None

    def _commit(self, members: set[int]) -> Process[None]:
        """Until all but the silent have the result."""
        has = members
        while True:
            yield from self._tell_all(Commit(self._round, tuple(sorted(has)), self._terms))
            if not (yield from self._wait_for(self._without_result, has)):
                return
            # Some who have it are silent. If there are no others, one of them has to come back first.
            while not (has := (members | self._progress.holders(self._round)) - self._attendance.silent):
                yield from self._listen()

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _unprepared(self, who: bool) -> set[int]:
        if not who:
            return _SOMEBODY if len(self._prepared) < len(self._members) else _NOBODY
        return self._members - self._prepared

    def _without_result(self, who: bool) -> set[int]:
        silent = self._attendance.silent
        if not who:
            return _SOMEBODY if self._progress.lack(self._round, silent) else _NOBODY
        return set(self._ranks) - self._progress.holders(self._round) - silent

    def _wait_for(self, missing: Callable[[bool], set[int]], needed: set[int]) -> Process[set[int]]:
        """Until nothing is missing, or one of those who are ``needed`` for that is silent: returns these.

        ``missing(False)`` is asked after every note, and need not say who it is.
        """
        while missing(False):
            if (yield from self._listen(self._patience)) is not None:
                continue
            asked = missing(True) | needed
            yield from self._tell_all(Ping(SCHEDULER), asked, PULSE)
            while asked and missing(False) and (heard := (yield from self._listen(self._patience))) is not None:
                asked.discard(heard)
            if missing(False):
                self._attendance.fall_silent(asked)
                if lost := asked & needed:
                    return lost
        return set()

    def _listen(self, seconds: float | None = None) -> Process[int | None]:
        """Takes one note in; who sent it, or None if nothing came."""
        mail: Any = yield Next(seconds)
        if mail is None:
            return None
        sender: int = mail.sender
        if (yield from self._correspondence.hear_from(sender)):
            self._attendance.come_back(sender)
        self._take_in(sender, mail.note)
        return sender

    def _take_in(self, sender: int, note: Any) -> None:
        if isinstance(note, Ready):
            self._attendance.is_ready(sender)
        elif isinstance(note, Done):
            self._attendance.is_done(sender)
        elif isinstance(note, Prepared):
            if note.number == self._number:
                self._prepared.add(sender)
        elif isinstance(note, Got):
            self._progress.has(sender, note.round)
        elif isinstance(note, Terms):
            self._terms = note.text
        elif isinstance(note, HasShift):
            self._has_shift = True

    def _tell_all(self, note: Note, ranks: Iterable[int] | None = None, process: str = WORKER) -> Process[None]:
        for rank in self._ranks if ranks is None else sorted(ranks):
            yield from self._correspondence.tell(rank, process, note)


_SOMEBODY, _NOBODY = {-1}, set[int]()


class _Attendance:
    """Who has gradients, who may still bring some, and who does not answer."""

    def __init__(self, ranks: Sequence[int], silent: set[int]) -> None:
        self._ready: set[int] = set()
        self._working = set(ranks)
        self.silent = silent
        self.ready, self.working = Roster(), Roster(ranks)  # of those who are not silent

    @property
    def any_left(self) -> bool:
        return bool(self._working or self._ready or self.silent)

    def is_ready(self, rank: int) -> None:
        self._ready.add(rank)
        self.ready.add(rank)

    def is_done(self, rank: int) -> None:
        self._working.discard(rank)
        self.working.discard(rank)

    def take(self, ranks: Iterable[int]) -> None:
        """Their gradients are in a round."""
        for rank in ranks:
            self._ready.discard(rank)
            self.ready.discard(rank)

    def fall_silent(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self.silent.add(rank)
            self.ready.discard(rank)
            self.working.discard(rank)

    def come_back(self, rank: int) -> None:
        if rank in self._ready:
            self.ready.add(rank)
        if rank in self._working:
            self.working.add(rank)


class _Progress:
    """Which rounds' results each rank has."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._last = dict.fromkeys(ranks, -1)  # round that a rank has the result of
        self._holders: Counter[int] = Counter()  # ranks that have it, by round
        self.all_have = -1  # the last round that all have

    def has(self, rank: int, round: int) -> None:
        self._last[rank] = round
        self._holders[round] += 1
        while self._holders[self.all_have + 1] == len(self._last):
            self.all_have += 1
            del self._holders[self.all_have]

    def holders(self, round: int) -> set[int]:
        return {rank for rank, last in self._last.items() if last >= round}

    def lack(self, round: int, silent: Iterable[int]) -> bool:
        """Whether any but the silent have not got the result."""
        if round <= self.all_have:
            return False
        return len(self._last) - self._holders[round] > sum(self._last[rank] < round for rank in silent)
