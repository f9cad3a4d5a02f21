"""Hop's worker: a process on every rank that averages its model with its neighbours', iteration by iteration.

In an iteration it sends its model to its out-neighbours, waits for as many of its in-neighbours' as the settings ask
for, and blends them. To *enter* the next iteration it needs a token of each out-neighbour, so that nobody gets further
ahead than somebody can follow; whoever enters one gives its in-neighbours a token. A worker that has fallen far behind
may jump over iterations.
"""

from typing import Any, Protocol

from spardl.effects import TRAINING, Mail, Next, Now, Post, Process
from spardl.graphs import Graph
from spardl.protocols.hop.intake import Blend, Intake
from spardl.protocols.hop.notes import WORKER, Begin, Close, Entered, Leaving, Offer, Token, Update
from spardl.protocols.hop.settings import PARALLEL, SERIAL, Settings
from spardl.protocols.hop.token_queues import TokenQueues


class Part(Protocol):
    """How models are sent and blended."""

    def write(self, model: Any) -> Any:
        """As an array to post."""

    def read(self, array: Any, sender: int) -> Any:
        """What was written. Raises WireError for bytes that are no model."""

    def blend(self, model: Any, blend: Blend, before: Any = None) -> Any:
        """The weighted mean; of ``before``, if it is given, and what made ``model`` of that is added."""


class Worker:
    """Run it with ``run``."""

    def __init__(self, me: int, graph: Graph, settings: Settings, part: Part) -> None:
        self._me, self._graph, self._settings, self._part = me, graph, settings, part
        self.intake = Intake(me, graph, settings)
        self.tokens = TokenQueues(graph.outward[me], settings.max_gap)
        self.iteration = 0
        self._before: Any = None  # the model that this iteration began with, in parallel order
        self._numbers = dict.fromkeys(graph.outward[me], 0)  # of updates on the link
        self._last_sent = -1
        self._offer: Any = None
        self._closed = False
        self._told_late = 0

    def run(self) -> Process[int]:
        """Returns the last iteration."""
        while True:
            while self._offer is None and not self._closed:
                yield from self._listen()
            if self._offer is None:
                break
            model, self._offer = self._offer, None
            yield from self._iterate(model)
        for rank in sorted({*self._graph.inward[self._me], *self._graph.outward[self._me]}):
            yield Post(rank, WORKER, Leaving(self._last_sent))
        return self.iteration

    def _listen(self) -> Process[None]:
        mail: Mail = yield Next()
        sender, note = mail.sender, mail.note
        if isinstance(note, Update):
            update = self._part.read(mail.array, sender)
            self.intake.take_in(sender, note.iteration, note.number, update, self.iteration)
        elif isinstance(note, Token):
            self.tokens.put(sender, note.iteration)
        elif isinstance(note, Leaving):
            self.tokens.leave(sender)
            self.intake.leave(sender, note.iteration)
            self._numbers.pop(sender, None)
        elif isinstance(note, Begin):
            if self._settings.order == PARALLEL:
                self._before = mail.array
                yield from self._send(mail.array)
        elif isinstance(note, Offer):
            self._offer = mail.array
        elif isinstance(note, Close):
            self._closed = True
        else:
            self._take_other(sender, note)

    def _take_other(self, sender: int, note: Any) -> None:
        """For workers that know more notes."""

    # -- an iteration --------------------------------------------------------------------------------------------------

    def _iterate(self, model: Any) -> Process[None]:
        if self._settings.order == SERIAL:
            yield from self._send(model)
        while not self.intake.enough(self.iteration, self._settings.backup):
            yield from self._listen()
        blend = self.intake.blend(self.iteration)
        model = self._part.blend(model, blend, self._before)
        first = self.iteration
        blended: float = yield Now()
        while not self.tokens.enough_for(1):
            yield from self._listen()
        waited = (yield Now()) - blended
        target, ages = self._target(), _ages(blend, first)
        if target > first + 1:
            model, more = yield from self._jump(model, target)
            ages += more
        yield from self._enter(model, target)
        late, self._told_late = self.intake.late - self._told_late, self.intake.late
        told = Entered(target, ages, late, target - first - 1, self._ahead(), waited)
        yield Post(self._me, TRAINING, told, model)

    def _enter(self, model: Any, target: int) -> Process[None]:
        self.tokens.take(target - self.iteration)
        self.iteration = target
        self.intake.advance(target)
        if self._settings.max_gap is not None:
            for rank in self._graph.inward[self._me]:
                yield Post(rank, WORKER, Token(target))
        if self._settings.order == PARALLEL:
            self._before = model
            yield from self._send(model)

    def _send(self, model: Any) -> Process[None]:
        """To those for whom it is not too late, as far as this rank knows."""
        array = None
        ranks = self._graph.at(self.iteration).outward[self._me]
        first = self.iteration % max(1, len(ranks))  # in turns: where backup workers are left out, not always the same
        for rank in ranks[first:] + ranks[:first]:
            if rank not in self._numbers or self._is_too_late_for(rank):
                continue
            if array is None:
                array = self._part.write(model)
            self._numbers[rank] += 1
            self._last_sent = self.iteration
            yield Post(rank, WORKER, Update(self.iteration, self._numbers[rank]), self._array_for(rank, model, array))

    def _array_for(self, rank: int, model: Any, array: Any) -> Any:
        return array

    def _is_too_late_for(self, rank: int) -> bool:
        there = self.tokens.iterations.get(rank, 0)
        return self.iteration < there - (self._settings.staleness or 0)

    def _ahead(self) -> int:
        """Of the neighbour that is furthest behind, as far as its tokens tell, or its updates where there are none."""
        slowest = self.tokens.slowest if self._settings.max_gap is not None else self.intake.slowest
        return 0 if slowest is None else max(0, self.iteration - slowest)

    # -- jumping -------------------------------------------------------------------------------------------------------

    def _target(self) -> int:
        """The iteration to enter: usually the next."""
        following, skip, slowest = self.iteration + 1, self._settings.skip, self.tokens.slowest
        if skip is None or slowest is None or slowest - self.iteration < skip.behind:
            return following
        assert self._settings.max_gap is not None
        # Further, and this rank might wait for an update that waits for its tokens.
        furthest = self.iteration + self._settings.max_gap + 1
        return max(following, min(slowest, self.iteration + skip.most, furthest))

    def _jump(self, model: Any, target: int) -> Process[tuple[Any, tuple[int, ...]]]:
        """Takes part in the last of the iterations that are left out, with the own model as it is."""
        while not self.intake.enough(target - 1, self._settings.backup, least=1):
            yield from self._listen()
        blend = self.intake.blend(target - 1)
        return self._part.blend(model, blend), _ages(blend, target - 1)


def _ages(blend: Blend, iteration: int) -> tuple[int, ...]:
    return tuple(max(0, iteration - tagged.iteration) for _, tagged in blend.updates)
