"""A gossiping worker: a process on every rank that averages its model with one neighbour's after every step.

It sends a *proposal* with its model as it is. The neighbour goes half of the way to it and answers with its own model
as it was before; then this worker goes half of the way to that. Both use what was sent, so the sum of all models stays
the same whatever happens in between. Who has a proposal open answers *busy*: so nobody waits for anybody in a circle,
on any graph.
"""

from typing import Any, Protocol

from spardl import chance
from spardl.effects import TRAINING, Mail, Next, Post, Process
from spardl.graphs import Graph
from spardl.protocols.gossip.notes import (
    WORKER,
    Acceptance,
    Busy,
    Finished,
    Gossiped,
    Parting,
    Proposal,
    Start,
    Stepped,
)

_NOBODY = -1


class Part(Protocol):
    """How models are sent and averaged."""

    def write(self, model: Any) -> Any:
        """As an array to post; a snapshot."""

    def read(self, array: Any, sender: int) -> Any:
        """What was written. Raises WireError for bytes that are no model."""

    def half_way(self, sent: Any, received: Any) -> Any:
        """(received − sent) / 2: by how much whoever has sent that moves."""

    def moved(self, model: Any, shift: Any) -> Any:
        """The model, moved by that."""


class Worker:
    """Run it with ``run``. ``seed``: of whom it asks when."""

    def __init__(self, me: int, graph: Graph, part: Part, seed: int = 0) -> None:
        self._me, self._part, self._seed = me, part, seed
        self._all = tuple(sorted({*graph.inward[me], *graph.outward[me]}))
        self._here = list(graph.outward[me])  # whom to ask
        self.model: Any = None
        self._shift: Any = None  # what answers have moved the model by since training got it
        self._stepped: Any = None
        self._finished = False
        self._asked: int | None = None  # who has a proposal of ours
        self._answer: Any = None
        self._was_busy = False
        self._accepted_by_us = dict.fromkeys(self._all, 0)
        self._accepted_ours = dict.fromkeys(self._all, 0)
        self._parted: dict[int, int] = {}  # who trains no more → how many of our proposals it has accepted
        self._answered = 0
        self._steps = 0

    def run(self) -> Process[None]:
        while True:
            while self._stepped is None and not self._finished:
                yield from self._listen()
            if self._stepped is None:
                break
            yield from self._gossip()
        for rank in self._all:
            yield Post(rank, WORKER, Parting(self._accepted_by_us[rank]))
        yield from self._tell_training()  # answers may have moved the model since

    def _gossip(self) -> Process[None]:
        model, self._stepped = self._stepped, None
        self.model = model if self._shift is None else self._part.moved(model, self._shift)
        self._shift = None
        self._steps += 1
        partner, busy = _NOBODY, False
        if self._here:
            asked = self._here[chance.below(len(self._here), "gossip", self._seed, self._me, self._steps)]
            self._asked, self._answer, self._was_busy = asked, None, False
            yield Post(asked, WORKER, Proposal(), self._part.write(self.model))
            while not self._is_answered():
                yield from self._listen()
            if self._answer is not None:
                self.model = self._part.moved(self.model, self._part.half_way(self.model, self._answer))
                partner = asked
            else:
                busy = True
            self._asked = None
        yield from self._tell_training(partner, busy)

    def _tell_training(self, partner: int = _NOBODY, busy: bool = False) -> Process[None]:
        answered, self._answered = self._answered, 0
        yield Post(self._me, TRAINING, Gossiped(partner, answered, busy), self.model)

    def _is_answered(self) -> bool:
        """By a model, by "busy", or since the one who was asked has left without one."""
        asked = self._asked
        assert asked is not None
        if self._answer is not None:
            return True
        left_without = asked in self._parted and self._parted[asked] <= self._accepted_ours[asked]
        return left_without or self._was_busy

    def _listen(self) -> Process[None]:
        mail: Mail = yield Next()
        sender, note = mail.sender, mail.note
        if isinstance(note, Proposal):
            yield from self._reply(sender, mail.array)
        elif isinstance(note, Acceptance):
            self._accepted_ours[sender] += 1
            self._answer = self._part.read(mail.array, sender)
        elif isinstance(note, Busy):
            self._was_busy = True
        elif isinstance(note, Parting):
            self._parted[sender] = note.accepted
            if sender in self._here:
                self._here.remove(sender)
        elif isinstance(note, Start):
            self.model = mail.array
        elif isinstance(note, Stepped):
            self._stepped = mail.array
        elif isinstance(note, Finished):
            self._finished = True

    def _reply(self, sender: int, array: Any) -> Process[None]:
        if self._asked is not None or self.model is None:
            yield Post(sender, WORKER, Busy())
            return
        received = self._part.read(array, sender)
        yield Post(sender, WORKER, Acceptance(), self._part.write(self.model))
        shift = self._part.half_way(self.model, received)
        self.model = self._part.moved(self.model, shift)
        self._shift = shift if self._shift is None else self._part.moved(self._shift, shift)
        self._accepted_by_us[sender] += 1
        self._answered += 1
