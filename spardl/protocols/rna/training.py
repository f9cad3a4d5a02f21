"""RNA as training sees it: it hands gradients in, waits where it is too far ahead, and takes out what rounds gave."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from spardl.effects import Now, Post, Process
from spardl.protocols.face import Face
from spardl.protocols.rna.hierarchy import REPORTER, Iterated, Push, Regroup
from spardl.protocols.rna.notes import LEAD, SCHEDULER, WORKER, Close, Gradient, Published, Terms
from spardl.protocols.rna.parts import Shift, Sum
from spardl.protocols.rna.waiting import Values


class Round(NamedTuple):
    """A round's result, and the terms on which all ranks apply it."""

    result: Sum | Shift
    terms: str


class Training(Face):
    """One rank's. ``most_ahead``: how many gradients may wait before training does."""

    def __init__(self, me: int, groups: Sequence[Sequence[int]], most_ahead: int, **waiting: Any) -> None:
        super().__init__(me, **waiting)
        self._most_ahead = most_ahead
        group = next(group for group in groups if me in group)
        self._is_lead = me == group[0]
        self.leads_one_of_several = self._is_lead and len(groups) > 1
        self.wants_regroup = False
        self._waiting = 0  # gradients that no round has taken
        self._terms = ""
        self._rounds: list[Round] = []

    def deposit(self, gradient: Values, version: int, *, terms: str = "", pace: float | None = None) -> Process[None]:
        """Hands a gradient in, which was computed with the weights after ``version`` rounds; the array is kept.

        Waits while this rank is too far ahead. ``pace``: what an iteration takes; None if there are no groups.
        """
        yield from self.wait(self._most_ahead)
        if self._is_lead and terms != self._terms:
            self._terms = terms
            yield Post(self._me, SCHEDULER, Terms(terms))
        self._waiting += 1
        self.metrics.iterations += 1
        yield Post(self._me, WORKER, Gradient(version), gradient)
        if pace is not None:
            yield Post(self._me, REPORTER, Iterated(pace))

    def wait(self, most: int = 0) -> Process[None]:
        """Until no more than so many gradients wait."""
        began = yield Now()
        yield from self._take_what_is_there()
        deadline = yield from self._deadline()
        while self._waiting > most:
            yield from self._take_next(deadline, "RNA: no round has taken this rank's gradients")
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
        """No more gradients come. Waits until all ranks have gone through all rounds."""
        yield Post(self._me, WORKER, Close())
        yield from self._wait_for_the_end("RNA: no round has ended")

    # ------------------------------------------------------------------------------------------------------------------

    def _take_note(self, note: Any, array: Any) -> None:
        if isinstance(note, Published):
            self._take_round(note, array)
        elif isinstance(note, Regroup):
            self.wants_regroup = True

    def _take_round(self, published: Published, result: Sum | Shift) -> None:
        metrics = self.metrics
        if isinstance(result, Sum):
            metrics.contributors.append(result.contributors)
        for age in published.ages:
            metrics.staleness[age] = metrics.staleness.get(age, 0) + 1
        metrics.dropped += published.dropped
        self._waiting -= len(published.ages) + published.dropped
        metrics.communicated_seconds += published.seconds
        self._rounds.append(Round(result, published.terms))
