"""Hop's queues, rules and settings, one by one; and schedules that reach the bounds."""

import random
from dataclasses import replace

import numpy as np
import pytest
from protocols.hop_world import replicas

from spardl.graphs import graph
from spardl.protocols.hop.intake import Intake
from spardl.protocols.hop.settings import Settings, Skip
from spardl.protocols.hop.token_queues import TokenQueues
from spardl.protocols.hop.update_queue import Tagged, UpdateQueue
from spardl.runtime.loopback import Loopback
from spardl.runtime.network import cluster
from spardl.runtime.virtual import virtual

STAR = [[1, 2, 3, 4], [0], [0], [0], [0]]


def intake(settings, on=STAR, me=0):
    return Intake(me, graph(on, len(on), weights="uniform"), settings)


def test_the_update_queue():
    queue = UpdateQueue([1, 2])
    queue.enqueue(0, 2, "a")
    queue.enqueue(1, 2, "b")
    queue.enqueue(0, 1, "c")
    assert queue.size() == 3
    assert queue.senders_of(0) == {1, 2}
    assert queue.dequeue(0) == [Tagged(1, 0, "c"), Tagged(2, 0, "a")]
    assert queue.dequeue(5) == []
    assert queue.drop_before(1) == 0
    assert queue.drop_before(2) == 1
    assert (queue.size(), queue.most) == (0, 3)


def test_tokens():
    tokens = TokenQueues([1, 2], 2)
    assert tokens.enough_for(2)
    assert not tokens.enough_for(3)
    tokens.take(2)
    assert not tokens.enough_for(1)
    tokens.put(1, 1)
    assert not tokens.enough_for(1)
    tokens.put(2, 3)
    assert tokens.enough_for(1)
    assert tokens.slowest == 1
    tokens.leave(1)
    assert tokens.enough_for(3)
    assert tokens.slowest == 3
    assert TokenQueues([1], None).enough_for(10**6)


def test_weights_of_bounded_staleness():
    """T-HOP-2: s = 5, in iteration 10, updates of 10 (its own), 7, 12 and 5 weigh 6, 3, 8 and 1 of 18."""
    taking = intake(Settings(staleness=5))
    for sender, iteration in ((1, 7), (2, 12), (3, 5)):
        taking.take_in(sender, iteration, 1, "model", now=10)
    own, updates = taking.blend(10)
    assert own == pytest.approx(6 / 18)
    assert [(tagged.iteration, weight) for weight, tagged in updates] == [
        (7, pytest.approx(3 / 18)),
        (12, pytest.approx(8 / 18)),
        (5, pytest.approx(1 / 18)),
    ]


def test_what_is_reused_weighs_less_each_time():
    taking = intake(Settings(staleness=3, reuse=True))
    taking.take_in(1, 4, 1, "model", now=4)
    assert [weight for weight, _ in taking.blend(4).updates] == [pytest.approx(4 / 8)]
    assert [weight for weight, _ in taking.blend(6).updates] == [pytest.approx(2 / 6)]
    assert taking.blend(8).updates == []
    once = intake(Settings(staleness=3))
    once.take_in(1, 4, 1, "model", now=4)
    once.blend(4)
    assert once.blend(5).updates == []


def test_backup_workers_are_not_waited_for_and_weights_are_shared_out():
    taking = intake(Settings(backup=1))
    for sender in (1, 2):
        taking.take_in(sender, 0, 1, "model", now=0)
    assert not taking.enough(0, 1)
    taking.take_in(3, 0, 1, "model", now=0)
    assert taking.enough(0, 1)
    own, updates = taking.blend(0)
    assert own == pytest.approx(1 / 4)
    assert len(updates) == 3
    taking.advance(1)
    taking.take_in(4, 0, 1, "model", now=1)
    assert taking.late == 1


def test_a_gone_neighbours_weight_goes_to_the_own_model():
    taking = intake(Settings())
    taking.leave(4, 0)
    for sender in (1, 2, 3):
        taking.take_in(sender, 1, 1, "model", now=1)
    assert taking.enough(1, 0)
    assert taking.blend(1).own == pytest.approx(2 / 5)


def test_what_a_gone_neighbour_has_sent_is_waited_for():
    """Its last model may come later than the note that it has gone."""
    taking = intake(Settings())
    taking.leave(4, 1)
    for sender in (1, 2, 3):
        taking.take_in(sender, 1, 1, "model", now=1)
    assert not taking.enough(1, 0)
    taking.take_in(4, 1, 1, "model", now=1)
    assert taking.enough(1, 0)


def test_repeats_are_dropped_and_gaps_raise():
    taking = intake(Settings())
    taking.take_in(1, 0, 1, "model", now=0)
    taking.take_in(1, 0, 1, "another", now=0)
    assert taking.queue.dequeue(0)[0].update == "model"
    assert taking.repeats == 1
    with pytest.raises(RuntimeError, match="update 3 of rank 1 has come after 1"):
        taking.take_in(1, 2, 3, "model", now=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(skip=Skip(2, 4)), "skip to be None without backup or staleness"),
        (Settings(None, 0, 2, skip=Skip(2, 4)), "max_gap to be a number where iterations are skipped"),
        (Settings(staleness=2, skip=Skip(1, 4)), "at least 2 each"),
        (Settings(None, 1), "max_gap to be a number where there are backup workers"),
        (Settings(backup=3), "backup to be at most 2"),
        (Settings(backup=-1), "backup to be at most 2"),
        (Settings(0), "max_gap to be at least 1"),
        (Settings(staleness=-1), "staleness to be at least 0"),
        (Settings(reuse=True), "reuse to be False without staleness"),
    ],
)
def test_illegal_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=f"Hop: expected .*{words}"):
        settings.require_legal(graph("ring", 6))


def test_a_graph_that_changes_needs_all_updates():
    with pytest.raises(ValueError, match="one that does not change"):
        Settings(staleness=1).require_legal(graph("one-peer-exponential", 8))
    Settings().require_legal(graph("one-peer-exponential", 8))


# -- schedules ---------------------------------------------------------------------------------------------------------


def stall(on, asked, slow, iterations=40):
    """The largest gaps if one rank does not move at all for a long time."""
    made, programs, watched = replicas(
        [iterations] * on.ranks, random.Random(0), on, asked, limit=30.0, slowness=(1,), pace=0.01
    )
    never = made[slow].train(iterations, np.random.default_rng(0), 1, pace=1e6)
    programs[slow] = replace(programs[slow], training=never)
    with pytest.raises(Exception, match="Hop"):
        virtual(programs, network=cluster(on.ranks))
    return watched.gaps


@pytest.mark.parametrize("name", ["ring", "ring-based", "exponential", "complete"])
@pytest.mark.parametrize("asked", [Settings(3), Settings(None), Settings(2, staleness=2), Settings(None, staleness=1)])
def test_some_schedule_reaches_the_bound(name, asked):
    """Standard and staleness: everyone gets as far ahead of a rank that is stuck as the bound says."""
    on = graph(name, 4)
    bound = on.gap_bound(asked.max_gap, (asked.staleness or 0) + 1)
    for slow in range(4):
        np.testing.assert_array_equal(stall(on, asked, slow)[:, slow], bound[:, slow])


@pytest.mark.parametrize("ranks", [3, 5])
def test_a_directed_ring_without_tokens(ranks):
    """T-HOP-3: an in-neighbour can be n − 1 ahead."""
    on = graph([[(rank + 1) % ranks] for rank in range(ranks)], ranks)
    gaps = stall(on, Settings(None), 0)
    assert gaps[ranks - 1, 0] == ranks - 1


def test_a_worker_that_is_behind_jumps_as_far_as_it_may():
    """With a rank that is four times slower, which is behind again and again."""
    on = graph("complete", 4)
    asked = Settings(3, 1, skip=Skip(2, 10))
    made, programs, watched = replicas([60] * 4, random.Random(0), on, asked, slowness=(1,), pace=0.01)
    slow = made[0].train(60, np.random.default_rng(0), 1, pace=0.04)
    virtual([replace(programs[0], training=slow), *programs[1:]], network=cluster(4))
    assert made[0].training.metrics.skipped > 15
    assert all(jump <= 3 for jump in np.diff([0, *(iteration for iteration, _ in made[0].models)]) - 1)
    assert (watched.gaps <= on.gap_bound(3, None)).all()


@pytest.mark.parametrize("asked", [Settings(2, 1, skip=Skip(2, 9)), Settings(2, staleness=2, skip=Skip(2, 9))])
def test_no_jump_goes_so_far_that_it_waits_for_itself(asked):
    """T-HOP-6, in the triangle i → j → l → i: further than max_gap + 1 it would wait for an update of l, which waits
    for a token of i.
    """
    on = graph([[1], [2], [0]], 3)
    longest = 0
    for seed in range(300):
        made, programs, _ = replicas([12] * 3, random.Random(seed), on, asked, slowness=(0, 1, 9, 30))
        Loopback(programs, seed=seed).run()
        jumps = [np.diff([0, *(iteration for iteration, _ in replica.models)]).max() for replica in made]
        longest = max(longest, *jumps)
    assert longest == 3
