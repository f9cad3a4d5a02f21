"""Gossip as training sees it: it hands its model in after every step, and gets it averaged with a neighbour's."""

from typing import Any

from spardl.effects import Now, Post, Process
from spardl.protocols.face import Face
from spardl.protocols.gossip.notes import WORKER, Finished, Gossiped, Start, Stepped


class Training(Face):
    """One rank's."""

    iteration = 0
    _gossiped: tuple[Gossiped, Any] | None = None

    def begin(self, model: Any) -> Process[None]:
        """Hands in what it starts from, which is kept; before the first step."""
        yield Post(self._me, WORKER, Start(), model)

    def blend(self, model: Any) -> Process[Any]:
        """Hands in what it has after a step, which is kept; returns what to go on with."""
        began: float = yield Now()
        yield Post(self._me, WORKER, Stepped(), model)
        deadline = yield from self._deadline()
        while self._gossiped is None:
            yield from self._take_next(deadline, "Gossip: a neighbour has not answered")
        (gossiped, blended), self._gossiped = self._gossiped, None
        self.iteration += 1
        self._count(gossiped, (yield Now()) - began)
        return blended

    def close(self) -> Process[Any]:
        """This rank trains no more. Waits until all ranks have come to that; returns the model, None if none was begun.

        Neighbours may have averaged with it since the last step.
        """
        yield Post(self._me, WORKER, Finished())
        yield from self._wait_for_the_end("Gossip: not all ranks have come to the end")
        (gossiped, model), self._gossiped = self._gossiped or (None, None), None
        if gossiped is not None:
            self.metrics.used += gossiped.answered
        return model

    def _take_note(self, note: Any, array: Any) -> None:
        if isinstance(note, Gossiped):
            self._gossiped = (note, array)

    def _count(self, gossiped: Gossiped, waited: float) -> None:
        metrics = self.metrics
        used = int(gossiped.partner >= 0) + gossiped.answered
        metrics.iterations += 1
        metrics.contributors.append(1 + int(gossiped.partner >= 0))
        metrics.used += used
        metrics.staleness[0] = metrics.staleness.get(0, 0) + 1 + used
        metrics.busy += gossiped.busy
        metrics.waited_seconds += waited
        metrics.communicated_seconds += waited
        if gossiped.partner >= 0:
            metrics.waited_for[gossiped.partner] = metrics.waited_for.get(gossiped.partner, 0.0) + waited
