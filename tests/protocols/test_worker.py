"""RNA's worker, note by note."""

import numpy as np
import pytest

from spardl.effects import CALLED_OFF, TRAINING, Join, Mail, Next, Now, Post
from spardl.protocols.results import RESULTS, Forget, Keep, Result, Want
from spardl.protocols.rna.notes import (
    LEAD,
    SCHEDULER,
    WORKER,
    Close,
    Commit,
    Done,
    Go,
    Got,
    Gradient,
    HasShift,
    Offer,
    Prepared,
    Published,
    Ready,
    RoundsEnded,
    Stop,
)
from spardl.protocols.rna.waiting import Summed
from spardl.protocols.rna.worker import Worker

ME = 2


class Part:
    """Results are texts."""

    def __init__(self):
        self.undone = 0

    def contribute(self, members, rank, contribution):
        assert members[members.index(rank)] == ME
        return f"reduce of {contribution.tolist()} among {members}"

    def undo(self):
        self.undone += 1

    def read(self, kind, message):
        return f"{kind} {message}"


class Driven:
    """A worker, and what it asked for since it last waited. The clock stands still."""

    def __init__(self, lead=0):
        self.part = Part()
        self._process = Worker(ME, lead, Summed(), self.part).run()
        self.rounds = None
        self._go_on(None)

    def _go_on(self, answer):
        self.asked = []
        try:
            while not isinstance(ask := self._process.send(answer), Next | Join):
                if isinstance(ask, Post):
                    self.asked.append(ask)
                answer = 0.0 if isinstance(ask, Now) else None
            self.waits = ask
        except StopIteration as stop:
            self.waits, self.rounds = None, stop.value

    def hears(self, note, array=None, sender=0):
        assert isinstance(self.waits, Next)
        self._go_on(Mail(sender, note, array))
        return self.asked

    def ends_round(self, result):
        assert isinstance(self.waits, Join)
        self._go_on(result)
        return self.asked

    def is_ready(self):
        assert self.hears(Gradient(0), np.ones(1), ME) == [Post(0, SCHEDULER, Ready())]


def published(terms="", ages=()):
    return Published(terms, ages, 0, 0.0)


def after(round, terms="", ages=(), result="sum"):
    return [
        Post(ME, RESULTS, Keep(round), result),
        Post(ME, TRAINING, published(terms, ages), result),
        Post(0, SCHEDULER, Got(round)),
    ]


@pytest.fixture
def worker():
    return Driven()


def test_a_round_that_it_is_in(worker):
    worker.is_ready()
    assert worker.hears(Gradient(0), np.full(1, 2.0), ME) == []  # is told once
    assert worker.hears(Go(0, 1, (1, 2), 0)) == [Post(ME, RESULTS, Forget(0))]
    assert worker.waits == Join((1, 2), 1, "reduce of [3.0] among (1, 2)", (Go,), "RNA's round 0, attempt")
    assert worker.ends_round("sum") == [Post(0, SCHEDULER, Prepared(1))]
    assert worker.hears(Commit(0, (1, 2), "lr")) == after(0, "lr", (0, 0))
    assert worker.hears(Gradient(1), np.ones(1), ME) == [Post(0, SCHEDULER, Ready())]  # and once more


def test_a_round_that_it_is_not_in(worker):
    worker.hears(Go(0, 1, (0, 1), 0))
    assert worker.hears(Commit(0, (0, 1))) == [Post(0, RESULTS, Want(0, WORKER))]
    assert worker.hears(Result(5, "old"), "x", 1) == []  # of another round
    assert worker.hears(Result(0, "sum"), "of two", 1) == after(0, result="sum of two")


def test_a_provider_that_falls_silent(worker):
    worker.hears(Commit(0, (0,)))
    assert worker.hears(Commit(0, (1, 3, 4))) == [Post(4, RESULTS, Want(0, WORKER))]
    assert worker.hears(Result(0, "sum"), "", 4) == after(0, result="sum ")
    assert worker.hears(Commit(0, (1,))) == []  # it has that round


def test_what_comes_while_a_result_is_fetched_waits(worker):
    """Notes that were kept for a rank that was silent come all at once."""
    worker.hears(Commit(0, (0,)))
    for note in (Go(1, 2, (2,), 0), Go(1, 3, (0,), 0), Commit(1, (0,)), Commit(1, (3,))):
        assert worker.hears(note) == []
    assert worker.hears(Gradient(0), np.ones(1), ME) == []
    asked = worker.hears(Result(0, "sum"), "", 0)
    # Neither does it join an attempt that is over, nor does it ask who has fallen silent since.
    assert isinstance(worker.waits, Next)
    assert asked[:3] == after(0, result="sum ")
    assert asked[3:] == [Post(ME, RESULTS, Forget(0))] * 2 + [Post(3, RESULTS, Want(1, WORKER))]
    assert worker.hears(Result(1, "sum"), "", 3) == [*after(1, result="sum "), Post(0, SCHEDULER, Ready())]


def test_an_attempt_that_is_called_off_is_tried_again(worker):
    worker.is_ready()
    worker.hears(Go(0, 1, (1, 2), 0))
    assert worker.ends_round(CALLED_OFF) == []
    assert worker.hears(Go(0, 2, (2,), 0)) == [Post(ME, RESULTS, Forget(0))]
    assert worker.waits.collective == "reduce of [1.0] among (2,)"
    assert worker.part.undone == 0


def test_an_attempt_that_it_is_prepared_for_is_taken_back(worker):
    worker.is_ready()
    worker.hears(Go(0, 1, (1, 2), 0))
    worker.ends_round("sum")
    worker.hears(Go(0, 2, (1,), 0))
    assert worker.part.undone == 1
    assert worker.hears(Commit(0, (1,))) == [Post(1, RESULTS, Want(0, WORKER))]
    worker.hears(Result(0, "sum"), "", 1)
    worker.hears(Go(1, 3, (2,), 0))
    assert worker.waits.collective == "reduce of [1.0] among (2,)"  # its gradient still waits


def test_a_shift_goes_through_a_round_of_its_own():
    worker = Driven(lead=ME)
    assert worker.hears(Offer(), "shift", ME) == [Post(ME, SCHEDULER, HasShift())]
    assert worker.hears(Offer(), "another", ME) == []  # one waits
    assert worker.hears(Go(0, 1, (2,), 0, True)) == [Post(ME, RESULTS, Forget(0)), Post(ME, SCHEDULER, Prepared(1))]
    worker.hears(Go(0, 2, (2,), 0, True))
    assert worker.part.undone == 0  # there is nothing to take back
    asked = worker.hears(Commit(0, (2,)))
    assert asked[:2] == after(0, result="shift")[:2]
    assert worker.hears(Offer(), "the next", ME) == [Post(ME, SCHEDULER, HasShift())]


def test_the_end(worker):
    worker.is_ready()
    assert worker.hears(Close(), sender=ME) == []  # a gradient waits
    worker.hears(Go(0, 1, (2,), 0))
    worker.ends_round("sum")
    assert worker.hears(Commit(0, (2,))) == [*after(0, ages=(0,)), Post(0, SCHEDULER, Done())]
    assert worker.hears(Stop(1)) == [Post(ME, LEAD, RoundsEnded())]
    assert worker.rounds == 1
