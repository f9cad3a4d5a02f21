"""RNA as training sees it: it hands gradients in, waits where it is too far ahead, and takes out what rounds gave.

Every method that takes time is a process, or a part of one: on real ranks the user's thread drives it, blocking.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spardl.effects import Mail, Next, Now, Post, Process
from spardl.errors import PeerTimeout
from spardl.protocols.liveness import ROLL_CALL, CallRoll, Silent
from spardl.protocols.metrics import Metrics
from spardl.protocols.rna.hierarchy import REPORTER, Iterated, Push, Regroup
from spardl.protocols.rna.notes import LEAD, SCHEDULER, WORKER, Close, Gradient, Published, Terms
from spardl.protocols.rna.parts import Shift, Sum
from spardl.protocols.rna.waiting import Values
from spardl.runtime.process import Ended


class Round(NamedTuple):
    """A round's result, and the terms on which all ranks apply it."""

    result: Sum | Shift
    terms: str


class Training:
    """One rank's. ``most_ahead``: how many gradients may wait before training does.

    ``limit``: seconds to wait for a round; ``grace`` of them are for asking who is there. ``blame`` makes of the ranks
    that give no sign of life, by position, those that the error names; ``advice`` ends its text.
    """

    def __init__(
        self,
        me: int,
        groups: Sequence[Sequence[int]],
        most_ahead: int,
        *,
        limit: float,
        grace: float,
        metrics: Metrics | None = None,
        blame: Callable[[frozenset[int]], tuple[int, ...]] = lambda silent: tuple(sorted(silent)),
        advice: str = "",
    ) -> None:
        self._me, self._most_ahead = me, most_ahead
        group = next(group for group in groups if me in group)
        self._is_lead = me == group[0]
        self.leads_one_of_several = self._is_lead and len(groups) > 1
        self._limit, self._grace, self._blame, self._advice = limit, grace, blame, advice
        self.metrics = Metrics() if metrics is None else metrics
        self.communicated = 0.0  # seconds in rounds, and waiting for results of others
        self.wants_regroup = False
        self._waiting = 0  # gradients that no round has taken
        self._terms = ""
        self._rounds: list[Round] = []
        self._silent: frozenset[int] | None = None
        self._ended = False

    def deposit(self, gradient: Values, version: int, *, terms: str = "", pace: float | None = None) -> Process[None]:
        """Hands a gradient in, which was computed with the weights after ``version`` rounds; the array is kept.

        Waits while this rank is too far ahead. ``pace``: what an iteration takes; None if there are no groups.
        """
        yield from self.wait(self._most_ahead)
        if self._is_lead and terms != self._terms:
            self._terms = terms
            yield Post(self._me, SCHEDULER, Terms(terms))
        self._waiting += 1
        yield Post(self._me, WORKER, Gradient(version), gradient)
        if pace is not None:
            yield Post(self._me, REPORTER, Iterated(pace))

    def wait(self, most: int = 0) -> Process[None]:
        """Until no more than so many gradients wait."""
        began = yield Now()
        yield from self._take_what_is_there()
        deadline = began + self._limit - self._grace
        while self._waiting > most:
            mail = yield Next(max(0.0, deadline - (yield Now())))
            if mail is None:
                raise (yield from self._timed_out("RNA: no round has taken this rank's gradients"))
            self._take(mail)
        self.metrics.waited_seconds += (yield Now()) - began

    def collect(self) -> Process[list[Round]]:
        """All results that have come since the last time, in order; does not wait."""
        yield from self._take_what_is_there()
        rounds, self._rounds = self._rounds, []
        return rounds

    def push(self, weights: Values) -> Process[None]:
        """A lead hands its group's weights in, to be averaged with those of others; the array is kept."""
        if self.leads_one_of_several:
            yield Post(self._me, LEAD, Push(), weights)

    def close(self) -> Process[None]:
        """No more gradients come. Waits until all ranks have gone through all rounds.

        Others may have much left to do: the time limit is for hearing nothing of them at all.
        """
        yield Post(self._me, WORKER, Close())
        while not self._ended:
            mail = yield Next(self._limit - self._grace)
            if mail is None:
                raise (yield from self._timed_out("RNA: no round has ended"))
            self._take(mail)

    # ------------------------------------------------------------------------------------------------------------------

    def _take_what_is_there(self) -> Process[None]:
        while (mail := (yield Next(0))) is not None:
            self._take(mail)

    def _take(self, mail: Mail) -> None:
        note = mail.note
        if isinstance(note, Published):
            self._take_round(note, mail.array)
        elif isinstance(note, Regroup):
            self.wants_regroup = True
        elif isinstance(note, Silent):
            self._silent = note.ranks
        elif isinstance(note, Ended):
            self._ended = True

    def _take_round(self, published: Published, result: Sum | Shift) -> None:
        metrics = self.metrics
        if isinstance(result, Sum):
            metrics.contributors.append(result.contributors)
        for age in published.ages:
            metrics.staleness[age] = metrics.staleness.get(age, 0) + 1
        metrics.dropped += published.dropped
        self._waiting -= len(published.ages) + published.dropped
        self.communicated += published.seconds
        self._rounds.append(Round(result, published.terms))

    def _timed_out(self, what: str) -> Process[PeerTimeout]:
        """``what`` has not happened in time: an error that names those who give no sign of life."""
        self._silent = None
        yield Post(self._me, ROLL_CALL, CallRoll(self._grace))
        deadline = (yield Now()) + 1.5 * self._grace
        while self._silent is None:
            mail: Any = yield Next(max(0.0, deadline - (yield Now())))
            if mail is None:  # this rank itself is stuck
                break
            self._take(mail)
        ranks = self._blame(self._silent or frozenset())
        many = len(ranks) > 1
        who = (
            f"Rank{'s' * many} {', '.join(map(str, ranks))} give{'s' * (not many)} no sign of life."
            if ranks
            else "Every rank answers, so one of them has to be busy with something else."
        )
        return PeerTimeout(f"{what} within {self._limit:g} s. {who} {self._advice}".rstrip(), ranks=ranks)
