"""Partial Reduce as training sees it: it hands its model in, and waits for the average of a group."""

from typing import Any, NamedTuple

from spardl.effects import Now, Post, Process
from spardl.protocols.face import Face
from spardl.protocols.preduce.notes import WORKER, Assemble, Close, Offer, Outcome


class Mean(NamedTuple):
    """Of a group that this rank was in."""

    group: Assemble
    result: Any


class Training(Face):
    """One rank's. ``iteration``: how many it has seen, its own or others' whose models it has."""

    iteration = 0
    anchor = 0  # the number of the last group that had everyone
    _mean: Mean | None = None

    def average(self, model: Any, layout: str = "") -> Process[Mean]:
        """Hands in what this rank has after another iteration of its own, which is left alone; returns the mean."""
        began: float = yield Now()
        offered = self.iteration + 1
        yield Post(self._me, WORKER, Offer(offered, self.anchor, layout), model)
        deadline = yield from self._deadline()
        while self._mean is None:
            yield from self._take_next(deadline, "Partial Reduce: no group has formed")
        mean, self._mean = self._mean, None
        self.iteration = mean.group.iteration
        if mean.group.everyone:
            self.anchor = mean.group.number
        self._count(mean.group, offered, (yield Now()) - began)
        return mean

    def close(self) -> Process[None]:
        """This rank will not be ready again. Waits until all ranks have come to that."""
        yield Post(self._me, WORKER, Close(self.iteration))
        yield from self._wait_for_the_end("Partial Reduce: not all ranks have come to the end")

    def _take_note(self, note: Any, array: Any) -> None:
        if isinstance(note, Outcome):
            self._mean = Mean(note.group, array)
            self.metrics.communicated_seconds += note.seconds

    def _count(self, group: Assemble, offered: int, waited: float) -> None:
        behind = group.iteration - offered
        metrics = self.metrics
        metrics.iterations += 1
        metrics.contributors.append(len(group.members))
        metrics.staleness[behind] = metrics.staleness.get(behind, 0) + 1
        metrics.waited_seconds += waited
        if group.last != self._me:
            metrics.waited_for[group.last] = metrics.waited_for.get(group.last, 0.0) + waited
