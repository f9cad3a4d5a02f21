"""Hop as training sees it: it hands its model in after every step, and gets it blended with its neighbours'."""

from typing import Any

from spardl.effects import Now, Post, Process
from spardl.protocols.face import Face
from spardl.protocols.hop.notes import WORKER, Begin, Close, Entered, Offer


class Training(Face):
    """One rank's. ``iteration``: the one it is in."""

    iteration = 0
    _entered: tuple[Entered, Any] | None = None

    def begin(self, model: Any) -> Process[None]:
        """Hands in what it starts from, which is kept; before the first step."""
        yield Post(self._me, WORKER, Begin(), model)

    def blend(self, model: Any) -> Process[Any]:
        """Hands in what it has after this iteration's step, which is kept; returns what the next begins with."""
        began: float = yield Now()
        yield Post(self._me, WORKER, Offer(), model)
        deadline = yield from self._deadline()
        while self._entered is None:
            yield from self._take_next(deadline, f"Hop: the neighbours have not come to iteration {self.iteration}")
        (entered, blended), self._entered = self._entered, None
        self.iteration = entered.iteration
        self._count(entered, (yield Now()) - began)
        return blended

    def close(self) -> Process[None]:
        """This rank trains no more. Waits until all ranks have come to that."""
        yield Post(self._me, WORKER, Close())
        yield from self._wait_for_the_end("Hop: not all ranks have come to the end")

    def _take_note(self, note: Any, array: Any) -> None:
        if isinstance(note, Entered):
            self._entered = (note, array)

    def _count(self, entered: Entered, waited: float) -> None:
        metrics = self.metrics
        metrics.iterations += 1
        metrics.contributors.append(1 + len(entered.ages))
        metrics.used += len(entered.ages)
        for age in (0, *entered.ages):  # the own model is never behind
            metrics.staleness[age] = metrics.staleness.get(age, 0) + 1
        metrics.late += entered.late
        metrics.skipped += entered.skipped
        metrics.largest_gap = max(metrics.largest_gap, entered.ahead)
        metrics.waited_seconds += waited
        metrics.communicated_seconds += waited
        metrics.waited_for_tokens += entered.waited_for_tokens
