"""RNA as training sees it, mail by mail."""

import numpy as np
import pytest

from spardl import PeerTimeout
from spardl.effects import Mail, Next, Now, Post
from spardl.protocols.liveness import ROLL_CALL, CallRoll, Silent
from spardl.protocols.rna.hierarchy import REPORTER, Iterated, Regroup
from spardl.protocols.rna.notes import LEAD, SCHEDULER, WORKER, Close, Gradient, Published, Terms
from spardl.protocols.rna.parts import Shift, Sum
from spardl.protocols.rna.training import Training
from spardl.runtime.process import Ended
from spardl.sparse import SparseVector

GRADIENT = np.ones(2)


class Door:
    """Drives training; mail is there when it is asked for, or the clock goes on to the end of the wait."""

    def __init__(self):
        self.mail, self.posts, self.now = [], [], 0.0

    def drive(self, process):
        answer = None
        while True:
            try:
                ask = process.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = None
            if isinstance(ask, Post):
                self.posts.append((ask.process, ask.note))
            elif isinstance(ask, Now):
                answer = self.now
            elif isinstance(ask, Next):
                answer = self._next(ask.seconds)

    def _next(self, seconds):
        if self.mail:
            note, array = self.mail.pop(0)
            return Mail(1, note, array)
        self.now += seconds
        return None


def training(me=1, groups=((0, 1, 2),), **options):
    return Training(me, groups, 2, limit=20.0, grace=5.0, **options)


def a_round(contributors, ages=(), dropped=0, seconds=0.5):
    return Published("lr", ages, dropped, seconds), Sum(SparseVector(np.array([0]), np.ones(1), 2), contributors)


def test_training_waits_when_too_many_of_its_gradients_do():
    door, one = Door(), training()
    for version in range(3):
        door.drive(one.deposit(GRADIENT, version))
    assert door.posts == [(WORKER, Gradient(version)) for version in range(3)]
    with pytest.raises(PeerTimeout, match="no round has taken"):
        Door().drive(one.deposit(GRADIENT, 3))
    door.mail = [a_round(2), a_round(2, ages=(0, 1))]  # the first is without this rank
    door.drive(one.deposit(GRADIENT, 1))
    assert door.mail == []
    assert len(door.posts) == 4
    assert door.now == 0


def test_gradients_that_were_dropped_wait_no_more():
    door, one = Door(), training()
    for _ in range(3):
        door.drive(one.deposit(GRADIENT, 0))
    door.mail = [a_round(1, ages=(4,), dropped=2)]
    door.drive(one.wait())
    assert (one.metrics.dropped, one.metrics.staleness) == (2, {4: 1})


def test_rounds_come_in_order_with_their_terms():
    door, one = Door(), training()
    door.mail = [a_round(3), (Published("", (), 0, 0.25), Shift(GRADIENT)), a_round(1)]
    rounds = door.drive(one.collect())
    assert [terms for _, terms in rounds] == ["lr", "", "lr"]
    assert one.metrics.contributors == [3, 1]
    assert one.metrics.communicated_seconds == 1.25
    assert door.drive(one.collect()) == []


def test_the_lead_tells_terms_when_they_change_and_pushes_weights():
    door, one = Door(), training(me=0, groups=((0, 1), (2,)))
    for terms in ("a", "a", "b"):
        door.drive(one.deposit(GRADIENT, 0, terms=terms, pace=0.1))
    told = [note.text for process, note in door.posts if process == SCHEDULER]
    assert told == ["a", "b"]
    assert door.posts.count((REPORTER, Iterated(0.1))) == 3
    door.posts.clear()
    door.drive(one.push(GRADIENT))
    assert [process for process, _ in door.posts] == [LEAD]
    other = training(me=1, groups=((0, 1), (2,)))
    door.posts.clear()
    door.drive(other.push(GRADIENT))
    door.drive(other.deposit(GRADIENT, 0, terms="a"))
    assert door.posts == [(WORKER, Gradient(0))]
    assert Terms("a") not in [note for _, note in door.posts]


def test_closing_waits_for_the_end_as_long_as_there_are_signs_of_life():
    door, one = Door(), training()
    door.mail = [a_round(2), (Regroup(), None), (Ended(), None)]
    door.drive(one.close())
    assert door.posts == [(WORKER, Close())]
    assert one.wants_regroup


@pytest.mark.parametrize(
    ("silent", "words"),
    [
        ((2,), "Rank 2 gives no sign of life."),
        ((0, 2), "Ranks 0, 2 give no sign of life."),
        ((), "Every rank answers, so one of them has to be busy with something else."),
    ],
)
def test_who_gives_no_sign_of_life_is_named(silent, words):
    door, one = Door(), training(advice="Raise the limit.")
    door.drive(one.deposit(GRADIENT, 0))
    waits = one.wait()

    class Answers(Door):
        def _next(self, seconds):
            if (ROLL_CALL, CallRoll(5.0)) in self.posts:
                self.mail = [(Silent(frozenset(silent)), None)]
            return super()._next(seconds)

    asking = Answers()
    with pytest.raises(PeerTimeout, match="no round has taken this rank's gradients within 20 s") as caught:
        asking.drive(waits)
    assert asking.now == 15.0  # the rest of the limit is for the roll call
    assert caught.value.ranks == silent
    assert str(caught.value).endswith(f"{words} Raise the limit.")


def test_a_rank_that_is_stuck_itself_does_not_wait_for_ever():
    door, one = Door(), training()
    with pytest.raises(PeerTimeout, match="no round has ended within 20 s"):
        door.drive(one.close())
    assert door.now <= 22.5
