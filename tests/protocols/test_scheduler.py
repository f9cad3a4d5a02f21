"""RNA's scheduler, note by note, and what its work depends on."""

import random
import sys
from itertools import count

import pytest

from spardl.effects import Mail, Next, Post
from spardl.protocols.liveness import PULSE, Ping, Pong
from spardl.protocols.rna.notes import SCHEDULER, WORKER, Commit, Done, Go, Got, HasShift, Prepared, Ready, Stop, Terms
from spardl.protocols.rna.policies import All, Majority, PowerOfChoices, Solo
from spardl.protocols.rna.roster import Roster
from spardl.protocols.rna.scheduler import Scheduler


class Driven:
    """A scheduler of ranks 0 to 2, and to whom it told what since it last waited."""

    def __init__(self, policy):
        self._process = Scheduler(range(3), policy, patience=1.5, terms="at first").run()
        self.rounds = None
        self._go_on(None)

    def _go_on(self, answer):
        posts = []
        try:
            while not isinstance(ask := self._process.send(answer), Next):
                posts.append(ask)
                answer = None
            self.waits = ask.seconds
        except StopIteration as stop:
            self.rounds = stop.value
        self.posts = posts
        return posts

    def hears(self, sender, *notes):
        """What followed the last of these."""
        for note in notes:
            self._go_on(Mail(sender, note))
        return self.posts

    def hears_nothing(self):
        assert self.waits == 1.5
        return self._go_on(None)

    def hears_all(self, note):
        for rank in range(3):
            self.hears(rank, note)
        return self.posts


def told(note, ranks=(0, 1, 2), process=WORKER):
    return [Post(rank, process, note) for rank in ranks]


def test_a_round_waits_for_all_members_and_for_all_results():
    scheduler = Driven(All())
    assert scheduler.waits is None  # whoever computes takes its time
    assert scheduler.hears(1, Ready()) + scheduler.hears(0, Ready()) == []
    assert scheduler.hears(2, Ready()) == told(Go(0, 1, (0, 1, 2), 0))
    assert scheduler.hears(0, Prepared(1)) + scheduler.hears(1, Prepared(1)) == []
    assert scheduler.hears(2, Prepared(1)) == told(Commit(0, (0, 1, 2), "at first"))
    assert scheduler.hears(0, Got(0)) + scheduler.hears(2, Got(0)) == []
    assert scheduler.hears(1, Ready()) == []  # that of the next round
    scheduler.hears(1, Got(0))
    assert scheduler.hears(0, Terms("later"), Ready()) == []
    assert scheduler.hears(2, Ready()) == told(Go(1, 2, (0, 1, 2), 1))
    assert scheduler.hears_all(Prepared(2)) == told(Commit(1, (0, 1, 2), "later"))


def test_a_member_that_gives_no_sign_of_life_is_left_out():
    scheduler = Driven(All())
    scheduler.hears_all(Ready())
    scheduler.hears(1, Prepared(1))
    assert scheduler.hears_nothing() == told(Ping(SCHEDULER), process=PULSE)
    scheduler.hears(0, Pong())
    scheduler.hears(1, Pong())
    assert scheduler.hears_nothing() == told(Go(0, 2, (0, 1), 0), (0, 1))
    assert scheduler.hears(1, Prepared(1)) + scheduler.hears(0, Prepared(2)) == []  # the first is of the attempt before
    assert scheduler.hears(1, Prepared(2)) == told(Commit(0, (0, 1), "at first"), (0, 1))
    scheduler.hears(0, Got(0))
    scheduler.hears(1, Got(0), Ready())
    assert scheduler.hears(0, Ready()) == told(Go(1, 3, (0, 1), 0), (0, 1))  # what rank 2 lacks is kept for it
    missed = [Go(0, 2, (0, 1), 0), Commit(0, (0, 1), "at first"), Go(1, 3, (0, 1), 0)]
    assert scheduler.hears(2, Pong()) == [post for note in missed for post in told(note, (2,))]
    scheduler.hears(0, Prepared(3))
    assert scheduler.hears(1, Prepared(3)) == told(Commit(1, (0, 1), "at first"))


def test_a_member_that_answers_is_waited_for():
    scheduler = Driven(All())
    scheduler.hears_all(Ready())
    for _ in range(5):
        assert scheduler.hears_nothing() == told(Ping(SCHEDULER), process=PULSE)
        assert scheduler.hears_all(Pong()) == []
    assert scheduler.hears_all(Prepared(1)) == told(Commit(0, (0, 1, 2), "at first"))


def test_who_has_a_result_and_falls_silent_is_not_asked_for_it():
    scheduler = Driven(Solo())
    scheduler.hears(1, Ready())
    assert scheduler.hears(1, Prepared(1)) == told(Commit(0, (1,), "at first"))
    scheduler.hears(0, Got(0))
    assert scheduler.hears_nothing() == told(Ping(SCHEDULER), (1, 2), PULSE)  # who lacks it, and who has it
    scheduler.hears(2, Pong())
    assert scheduler.hears_nothing() == told(Commit(0, (0,), "at first"), (0, 2))


def test_who_alone_has_a_result_and_falls_silent_is_waited_for():
    scheduler = Driven(Solo())
    scheduler.hears(1, Ready(), Prepared(1))
    scheduler.hears_nothing()
    scheduler.hears(0, Pong())
    scheduler.hears(2, Pong())
    assert scheduler.hears_nothing() == []
    assert scheduler.waits is None
    assert scheduler.hears(0, Pong()) == []
    assert scheduler.hears(1, Pong()) == told(Commit(0, (1,), "at first"))


def test_an_attempt_without_members_is_none():
    scheduler = Driven(Solo())
    scheduler.hears(1, Ready())
    scheduler.hears_nothing()
    assert scheduler.hears_nothing() == []
    assert scheduler.waits is None
    # It is back, with its gradient; the next attempt has a number of its own.
    assert scheduler.hears(1, Pong()) == told(Go(0, 2, (1,), 0))


def test_it_ends_when_all_are_done_and_nobody_is_silent():
    scheduler = Driven(Solo())
    scheduler.hears(1, Ready())
    scheduler.hears(2, Done())
    scheduler.hears(1, Prepared(1), Got(0), Done())
    scheduler.hears(0, Got(0))
    scheduler.hears_nothing()
    scheduler.hears(1, Pong())
    assert scheduler.hears_nothing() == []  # rank 2 is silent
    assert scheduler.hears(0, Done()) == []
    assert scheduler.rounds is None
    assert scheduler.hears(2, Got(0)) == told(Stop(1))
    assert scheduler.rounds == 1


def test_a_shift_is_a_round_of_the_lead_alone():
    scheduler = Driven(All())
    assert scheduler.hears(0, HasShift()) == told(Go(0, 1, (0,), 0, True))
    scheduler.hears(1, Ready())
    assert scheduler.hears(0, Prepared(1)) == told(Commit(0, (0,), "at first"))
    assert scheduler.hears_all(Got(0)) == []
    scheduler.hears(0, Ready())
    assert scheduler.hears(2, Ready()) == told(Go(1, 2, (0, 1, 2), 1))


# -- how much work it is -----------------------------------------------------------------------------------------------


def calls_of(act):
    """How many functions it calls, and what it returns."""
    calls = count()
    sys.setprofile(lambda _frame, event, _argument: next(calls) if "call" in event else None)
    try:
        result = act()
    finally:
        sys.setprofile(None)
    return next(calls), result


class Course:
    """A scheduler, and the most calls that a note of each kind cost it, where no posts to all ranks followed."""

    def __init__(self, ranks, policy):
        self._scheduler = Scheduler(range(ranks), policy).run()
        self._ask = next(self._scheduler)
        self.costs = {}

    def hear(self, sender, note):
        assert isinstance(self._ask, Next)
        calls, self._ask = calls_of(lambda: self._scheduler.send(Mail(sender, note)))
        if isinstance(self._ask, Next):
            self.costs[type(note)] = max(calls, self.costs.get(type(note), 0))
        while isinstance(self._ask, Post):
            self._ask = self._scheduler.send(None)


def test_a_round_of_all_costs_the_same_per_note_for_any_number_of_ranks():
    costs = {}
    for ranks in (64, 4096):
        course = Course(ranks, All())
        for note in (Ready(), Prepared(1), Got(0)):
            for rank in range(ranks):
                course.hear(rank, note)
        costs[ranks] = course.costs
    assert costs[4096] == costs[64]
    assert costs[64].keys() == {Ready, Prepared, Got}


@pytest.mark.parametrize("policy", [PowerOfChoices(2, seed=3), Majority(seed=5)])
def test_asking_a_policy_costs_the_same_for_any_number_of_ranks(policy):
    costs = []
    for ranks in (64, 4096):
        course = Course(ranks, policy)
        for rank in range(ranks):
            course.hear(rank, Ready())
        costs.append(course.costs[Ready])
    assert abs(costs[0] - costs[1]) < 5  # one probe answers before the other, or after


def test_a_roster_is_a_set_with_places():
    chance, roster, ranks = random.Random(1), Roster(range(10)), set(range(10))
    for _ in range(2000):
        rank = chance.randrange(20)
        act, same = chance.choice([(roster.add, ranks.add), (roster.discard, ranks.discard)])
        act(rank)
        same(rank)
        assert len(roster) == len(ranks)
        assert set(roster) == ranks == {roster[place] for place in range(len(roster))}
        assert all((other in roster) == (other in ranks) for other in range(20))
