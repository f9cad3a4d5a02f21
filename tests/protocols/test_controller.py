"""Partial Reduce's controller, note by note."""

import pytest

from spardl.effects import Mail, Next, Now, Post
from spardl.protocols.liveness import PULSE, Ping, Pong
from spardl.protocols.preduce.controller import Controller
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.notes import (
    CONTROLLER,
    WORKER,
    Assemble,
    Averaged,
    CallOff,
    Dismissed,
    Goodbye,
    Signal,
    Take,
)
from spardl.protocols.preduce.settings import Settings
from spardl.protocols.preduce.weights import Dynamic


class Driven:
    """A controller of four ranks, and what it told whom since it last waited."""

    def __init__(self, ranks=4, **settings):
        self.history = GroupHistory(ranks)
        self._process = Controller(ranks, Settings(**{"group": 2, "patience": 1.5, **settings}), self.history).run()
        self.now, self.over = 0.0, False
        self._go_on(None)

    def _go_on(self, answer):
        self.posts = []
        try:
            while not isinstance(ask := self._process.send(answer), Next):
                answer = self.now if isinstance(ask, Now) else None
                if isinstance(ask, Post):
                    self.posts.append(ask)
            self.waits = ask.seconds
        except StopIteration:
            self.over = True
        return self.posts

    def hears(self, sender, note, at=None):
        self.now = self.now if at is None else at
        return self._go_on(Mail(sender, note))

    def ready(self, *ranks, iteration=1, anchor=0, layout=""):
        for rank in ranks:
            self.hears(rank, Signal(iteration, anchor, layout))
        return self.posts

    def hears_nothing(self):
        """For as long as it waits."""
        self.now += self.waits
        return self._go_on(None)

    def members(self):
        """Of the group that was made last."""
        return {post.note.members for post in self.posts if isinstance(post.note, Assemble)}


def told(note, ranks, process=WORKER):
    return [Post(rank, process, note) for rank in ranks]


def test_a_group_takes_its_average_when_all_members_have_it():
    controller = Driven()
    assert controller.waits is None  # whoever computes takes its time
    assert controller.ready(2) == []
    assert controller.ready(0, iteration=3) == told(Assemble(1, (0, 2), 0.5, 3, 0, 0, False), (0, 2))
    assert controller.hears(2, Averaged(1)) == []
    assert controller.hears(0, Averaged(1)) == told(Take(1), (0, 2))
    assert list(controller.history.recent) == [(0, 2)]


def test_groups_are_made_while_others_average():
    controller = Driven()
    controller.ready(0, 1)
    controller.ready(2, 3)
    assert controller.members() == {(2, 3)}
    controller.hears(3, Averaged(2))
    assert controller.hears(2, Averaged(2)) == told(Take(2), (2, 3))


def test_members_are_told_their_weights():
    controller = Driven(weights=Dynamic())
    controller.ready(1, iteration=7)
    posts = controller.ready(0, iteration=10)
    assert [post.note.weight for post in posts] == pytest.approx([8 / 9, 1 / 9])
    assert {(post.note.iteration, post.note.freshest) for post in posts} == {(10, 0)}


def test_an_average_of_all_weighs_all_alike_and_becomes_the_anchor():
    controller = Driven(ranks=2, weights=Dynamic(), global_every=1)
    controller.ready(0, iteration=5)
    assert controller.ready(1, iteration=1)[0].note.everyone is False
    for rank in (0, 1):
        controller.hears(rank, Averaged(1))
    controller.ready(0, iteration=9)
    posts = controller.ready(1, iteration=6)
    assert [(post.note.everyone, post.note.weight) for post in posts] == [(True, 0.5)] * 2
    for rank in (0, 1):
        controller.hears(rank, Averaged(2))
    assert controller.ready(0, 1, anchor=2)[0].note.everyone is False


def test_who_does_not_know_the_last_average_of_all_brings_about_another():
    controller = Driven(ranks=3, global_every=100)
    controller.ready(0)
    assert controller.ready(1, anchor=-1) == []  # it waits for the third
    assert [post.note.everyone for post in controller.ready(2)] == [True] * 3


def test_a_member_that_gives_no_sign_of_life_is_left_out_and_the_others_keep_their_places():
    controller = Driven()
    controller.ready(1, 0)
    assert controller.hears(0, Averaged(1)) == []
    assert controller.waits == 1.5
    assert controller.hears_nothing() == told(Ping(CONTROLLER), [1], PULSE)
    assert controller.hears_nothing() == told(CallOff(1), [0])  # rank 1 is told when it is back
    assert controller.ready(2) == told(Assemble(2, (0, 2), 0.5, 1, 0, 2, False), (0, 2))
    assert controller.hears(1, Averaged(1)) == told(CallOff(1), [1])
    assert controller.ready(3) == told(Assemble(3, (1, 3), 0.5, 1, 1, 3, False), (1, 3))


def test_a_sign_of_life_is_enough():
    controller = Driven()
    controller.ready(1, 0)
    controller.hears(0, Averaged(1))
    controller.hears_nothing()
    assert controller.hears(1, Pong()) == []
    assert controller.hears_nothing() == told(Ping(CONTROLLER), [1], PULSE)  # asked again, not left out
    controller.hears(1, Pong())
    assert controller.hears(1, Averaged(1)) == told(Take(1), (0, 1))


def test_a_member_that_has_the_average_may_fall_silent():
    """The others need nothing of it any more."""
    controller = Driven(ranks=3, group=3)
    controller.ready(0, 1, 2)
    controller.hears(2, Averaged(1))
    controller.hears_nothing()
    controller.hears(0, Pong())
    controller.hears(1, Pong())
    controller.hears_nothing()
    assert not any(isinstance(post.note, CallOff) for post in controller.posts)
    controller.hears(0, Averaged(1))
    assert controller.hears(1, Averaged(1)) == told(Take(1), (0, 1, 2))


def test_those_who_compute_are_asked_only_if_somebody_waits_for_them():
    controller = Driven(ranks=3, group=3)
    assert controller.waits is None
    controller.ready(0)
    assert controller.hears_nothing() == told(Ping(CONTROLLER), [1, 2], PULSE)
    controller.hears(1, Pong())
    controller.hears_nothing()  # rank 2 is left out
    controller.ready(1)
    assert controller.members() == {(0, 1)}


def test_a_goodbye_makes_it_look_again():
    controller = Driven(ranks=3, group=3)
    controller.ready(0, 1)
    assert controller.hears(2, Goodbye(9)) == told(Assemble(1, (0, 1), 0.5, 1, 0, 1, False), (0, 1))
    for rank in (0, 1):
        controller.hears(rank, Averaged(1))
    controller.hears(1, Goodbye(4))
    alone = controller.ready(0, iteration=2)
    assert alone == [Post(0, WORKER, Assemble(2, (0,), 1.0, 9, 0, 0, False))]  # all that those who are gone had seen
    controller.hears(0, Averaged(2))
    assert controller.hears(0, Goodbye(9)) == told(Dismissed(), range(3))
    assert controller.over


def test_who_is_held_for_somebody_of_another_part_goes_on_in_time():
    """2 and 3 have met, and so have 0 and 1, which take a second for a step."""
    controller = Driven()
    for number, ranks in enumerate([(0, 1), (2, 3), (0, 1)], 1):
        controller.now += 0.5
        for rank in ranks:
            controller.hears(rank, Signal(number, 0, ""))
        for rank in ranks:
            controller.hears(rank, Averaged(number))
    controller.now += 0.5
    assert controller.ready(2, 3) == []  # 0 is due in half a second
    assert controller.waits == pytest.approx(0.5)
    controller.hears_nothing()
    assert controller.members() == {(2, 3)}


def test_what_travels_must_be_the_same_on_all():
    controller = Driven()
    controller.ready(0, layout="exp_avg;step")
    with pytest.raises(ValueError, match=r"differs between ranks: 'exp_avg;step' on rank 0, ';' on rank 1"):
        controller.ready(1, layout=";")
