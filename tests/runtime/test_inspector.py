"""Inspectors of many ranks, in a world where a message takes no time and the clock is turned by hand."""

import logging
from types import SimpleNamespace

import pytest

from spardl import environment
from spardl.runtime import inspector
from spardl.runtime.inspector import Inspector, Lookout, warning_time

CALL, WARN_AFTER, TICK = 5, 2.0, 0.02  # seconds


class World:
    """Ranks that wait; whoever is ``stopped`` neither looks nor answers."""

    def __init__(self, waits, ranks, monkeypatch, ahead=()):
        self.now = 100.0
        monkeypatch.setattr(inspector, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.lookouts = [Lookout(ranks) for _ in range(ranks)]
        self.waits = dict(waits)  # rank → peer
        self.since = dict.fromkeys(waits, self.now)
        self.stopped, self.sent = set(), 0
        self.inspectors = {}
        for rank in range(ranks):
            home = SimpleNamespace(named_missing={})
            group = SimpleNamespace(
                me=rank, size=ranks, ranks=tuple(range(ranks)), hosts=[f"n{r}" for r in range(ranks)], home=home
            )
            channel = SimpleNamespace(
                group=group, lookout=self.lookouts[rank], tell_wait=lambda told, me=rank: self.deliver(me, told)
            )
            self.inspectors[rank] = Inspector(channel, CALL + (rank in ahead), f"reduce seen by {rank}", WARN_AFTER, 30)

    def deliver(self, sender, report):
        for rank, lookout in enumerate(self.lookouts):
            if rank != sender:
                self.sent += 1
                lookout.hear(sender, report)

    def wait_for(self, rank, peer):
        self.waits[rank], self.since[rank] = peer, self.now

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += TICK
            for rank, peer in self.waits.items():
                if rank not in self.stopped:
                    self.inspectors[rank].look(self.now, self.since[rank], peer, f"round of {rank}")


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "spardl.stall")
    return caplog


def test_nothing_is_sent_or_said_before_it_is_time(monkeypatch, warnings):
    world = World({0: 1, 1: 2}, 3, monkeypatch)
    world.run(WARN_AFTER - 0.6)
    assert world.sent == 0
    assert not warnings.messages


def test_rank_0_speaks_once_per_period_and_names_the_end_of_the_chain(monkeypatch, warnings):
    world = World({0: 1, 1: 3, 2: 0}, 4, monkeypatch)
    world.run(WARN_AFTER + 0.1)
    (text,) = warnings.messages
    assert text.startswith("spardl: reduce seen by 0, call 5, has waited for 2.0")
    assert "rank 3 on host n3 is missing: awaited by rank 1 in round of 1" in text
    assert "rank 0 for rank 1 in round of 0 of call 5, rank 2 for rank 0 in round of 2 of call 5" in text
    world.run(3 * WARN_AFTER)
    assert len(warnings.messages) == 4


def test_the_next_one_speaks_if_rank_0_is_missing(monkeypatch, warnings):
    world = World({1: 0, 2: 1}, 3, monkeypatch)
    world.run(WARN_AFTER + 0.1)
    (text,) = warnings.messages
    assert "seen by 1" in text
    assert "rank 0 on host n0 is missing" in text


def test_a_rank_that_has_waited_for_a_moment_only_is_not_blamed(monkeypatch, warnings):
    world = World({0: 1}, 3, monkeypatch)
    world.run(WARN_AFTER - 0.7)
    world.wait_for(1, 2)
    world.run(0.8)
    (text,) = warnings.messages
    assert "rank 2 on host n2 is missing" in text
    assert "rank 1 on host" not in text


def test_who_has_reported_and_moves_on_says_so(monkeypatch, warnings):
    """Rank 1 gets its message of rank 2 after all, if only between telling and printing: it is rank 3 that is late."""
    world = World({0: 1, 1: 2}, 4, monkeypatch)
    world.run(WARN_AFTER - 0.3)
    assert world.sent > 0
    world.wait_for(1, 3)
    world.wait_for(2, 0)
    world.run(0.5)
    (text,) = warnings.messages
    assert "rank 3 on host n3 is missing: awaited by rank 1" in text
    assert text.count("is missing") == 1


def test_ranks_that_are_a_call_ahead_wait_for_the_same_one(monkeypatch, warnings):
    """They got all they needed of the call before; whom they wait for now is not there yet, but not to blame."""
    world = World({0: 2, 1: 0, 3: 2}, 4, monkeypatch, ahead={1, 3})
    world.run(WARN_AFTER + 0.1)
    (text,) = warnings.messages
    assert "seen by 0, call 5," in text
    assert (
        "rank 2 on host n2 is missing: awaited by rank 0 in round of 0 of call 5, rank 3 in round of 3 of call 6"
        in text
    )
    assert "waiting behind: rank 1 for rank 0 in round of 1 of call 6" in text
    assert text.count("is missing") == 1


def test_who_stops_after_reporting_is_missing_in_the_next_warning(monkeypatch, warnings):
    world = World({0: 1, 1: 2, 2: 3}, 4, monkeypatch)
    world.run(WARN_AFTER + 0.1)
    world.stopped.add(1)
    world.run(WARN_AFTER)
    assert "rank 3 on host n3 is missing" in warnings.messages[0]
    assert "rank 1 on host n1 is missing: awaited by rank 0" in warnings.messages[1]
    assert "s ago it waited for rank 2 in round of 1 of call 5, and has not answered since" in warnings.messages[1]


def test_who_ends_the_call_withdraws_its_report(monkeypatch, warnings):
    world = World({0: 2, 1: 2}, 3, monkeypatch)
    world.run(WARN_AFTER + 0.1)
    for rank in (0, 1):
        world.inspectors[rank].go_on()
    assert [lookout.reports for lookout in world.lookouts] == [{}, {}, {}]
    assert warnings.messages[1].startswith("spardl: reduce seen by 0, call 5, went on after 2.1")
    assert len(warnings.messages) == 2


def test_collectives_in_flight_that_wait_for_the_same_rank_say_so_once(monkeypatch, warnings):
    world = World({0: 1}, 2, monkeypatch)
    first = world.inspectors[0]
    second = Inspector(first._channel, CALL, "another", WARN_AFTER, 30)
    for _ in range(round((WARN_AFTER + 0.1) / TICK)):
        world.now += TICK
        for each in (first, second):
            each.look(world.now, world.since[0], 1, "round 0")
    assert len(warnings.messages) == 1


def test_what_was_heard_is_of_late_and_of_the_awaited_rank():
    lookout = Lookout(40)
    lookout.note(3, 3, 1, "old")
    lookout.note(5, 4, 1, "before")
    lookout.note(7, 5, 2, "new")
    assert lookout.heard(5, 3) == {3: (3, 1, "old"), 5: (4, 1, "before"), 7: (5, 2, "new")}
    assert lookout.heard(5, 9) == {5: (4, 1, "before"), 7: (5, 2, "new")}
    for source in range(40):
        lookout.note(source, 6, 1, "all of them")
    assert len(lookout.heard(6, 0)) == 17


def test_reports_of_calls_that_are_over_are_forgotten():
    lookout = Lookout(2)
    lookout.hear(1, inspector.Report(5, 0, "", 1.0, False, {}))
    lookout.forget(4)
    assert lookout.reports
    lookout.forget(5)
    assert not lookout.reports


def test_the_warning_time(monkeypatch):
    name = environment.STALL_WARNING.name
    monkeypatch.delenv(name, raising=False)
    assert (warning_time(None), warning_time(0), warning_time(2)) == (30, 0, 2)
    monkeypatch.setenv(name, "7.5")
    assert (warning_time(None), warning_time(2)) == (7.5, 2)
    with pytest.raises(ValueError, match="warn_after: expected seconds >= 0, where 0 stands for no warnings, got -1"):
        warning_time(-1)
    monkeypatch.setenv(name, "nan")
    with pytest.raises(ValueError, match=f"{name}: expected seconds >= 0"):
        warning_time(None)
