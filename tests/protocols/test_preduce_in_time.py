"""Partial Reduce in virtual time: frozen groups thaw, and a slow worker holds nobody up."""

import random

import pytest
from protocols.preduce_world import N, replicas

from spardl.protocols.preduce.settings import Settings
from spardl.runtime.network import cluster
from spardl.runtime.virtual import virtual

SECONDS = 20.0


def groups_in_time(paces, asked, seconds=SECONDS):
    """The groups of workers with these paces, in so many seconds, in order."""
    counts = [round(seconds / pace) for pace in paces]
    programs, seen, histories = [], [], []
    for rank, pace in enumerate(paces):
        made, own, history = replicas(counts, random.Random(0), asked, slowness=(1,), pace=pace, k=N)
        programs.append(own[rank])
        seen.append(made[rank])
        histories.append(history)
    virtual(programs, network=cluster(len(paces), "10gbit", "10us"))
    return seen, histories[0]


def members_in_order(seen):
    return [
        group.members for _, group in sorted({one.group.number: one.group for r in seen for one in r.groups}.items())
    ]


# T-PR-6: workers 1, 2, 3, 4 arrive in that order for ever, at once or one after the other
@pytest.mark.parametrize("paces", [[0.1] * 4, [0.1, 0.1001, 0.1002, 0.1003]])
def test_frozen_groups_thaw(paces):
    frozen, _ = groups_in_time(paces, Settings(2, filtered=False))
    assert set(members_in_order(frozen)[:150]) == {(0, 1), (2, 3)}
    mixed, history = groups_in_time(paces, Settings(2))
    groups = members_in_order(mixed)
    window = 9
    for first in range(0, 150, window):
        assert any(members not in ((0, 1), (2, 3)) for members in groups[first : first + window])
    assert history.graph.rho < 0.95


def spaced(gap):
    """Workers 0 and 1 begin a step when 2 and 3 are in the middle of theirs."""
    return [0.1, 0.1, 0.1 + gap, 0.1 + gap]


@pytest.mark.parametrize("gap", [0.0, 1e-6, 1e-4])
def test_workers_of_one_speed_all_meet(gap):
    seen, history = groups_in_time(spaced(gap), Settings(2))
    together = {pair for members in members_in_order(seen) for pair in [members]}
    assert len(together) >= 3
    assert history.graph.rho < 1


@pytest.mark.parametrize("size", [2, 3])
def test_one_slow_worker_holds_nobody_up(size):
    """T-PR-7: 100 × slower. The others' rate is within 5 % of what it is without the filter."""
    paces = [0.1, 0.1, 0.1, 10.0]
    rates = []
    for filtered in (True, False):
        seen, _ = groups_in_time(paces, Settings(size, filtered=filtered), seconds=100.0)
        fast = [len(replica.groups) / (100.0 + replica.training.metrics.waited_seconds) for replica in seen[:3]]
        rates.append(sum(fast))
        assert len(seen[3].groups) == 10
    assert rates[0] >= 0.95 * rates[1]


def test_group_auto_takes_those_of_one_speed_together():
    seen, _ = groups_in_time([0.1] * 4 + [0.35] * 2, Settings("auto"), seconds=200.0)
    sizes = [len(members) for members in members_in_order(seen)]
    assert sizes[0] == 3  # half of them, to begin with
    assert set(sizes[40:200]) == {4}


def test_who_is_waited_for_is_told():
    seen, _ = groups_in_time([0.1, 0.1, 0.3], Settings(3))
    metrics = seen[0].training.metrics
    assert max(metrics.waited_for, key=metrics.waited_for.get) == 2
    assert sum(metrics.waited_for.values()) == pytest.approx(metrics.waited_seconds, rel=0.01)
    assert metrics.waited_seconds == pytest.approx(0.2 * len(seen[2].groups), rel=0.05)
