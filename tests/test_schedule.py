"""Schedules: every message has its receiver, every block arrives where it must, in as few rounds as claimed."""

import numpy as np
import pytest

from spardl import schedule

ALL = range(1, 34)


@pytest.mark.parametrize("p", ALL)
@pytest.mark.parametrize("rounds_of", [schedule.spar_reduce_scatter, schedule.bruck, schedule.recursive_doubling])
def test_sends_and_receives_match(p, rounds_of):
    if rounds_of is schedule.recursive_doubling and not schedule.is_power_of_two(p):
        with pytest.raises(ValueError, match=f"power of two of ranks, got {p}"):
            rounds_of(p, 0)
        return
    everyone = [rounds_of(p, w) for w in range(p)]
    assert {len(rounds) for rounds in everyone} == {schedule.ceil_log2(p)}
    for w, rounds in enumerate(everyone):
        for number, r in enumerate(rounds):
            assert everyone[r.to][number].source == w
            assert everyone[r.to][number].receives == r.sends
            assert r.to != w


@pytest.mark.parametrize("p", ALL)
def test_reduce_scatter_brings_every_block_home(p):
    """Walks the rounds with sets of contributors: in the end position w has block w from everybody, once."""
    held = [{j: [w] for j in range(p)} for w in range(p)]
    everyone = [schedule.spar_reduce_scatter(p, w) for w in range(p)]
    for number in range(schedule.ceil_log2(p)):
        messages = [(r[number].to, {j: held[w].pop(j) for j in r[number].sends}) for w, r in enumerate(everyone)]
        for to, blocks in messages:
            for j, contributors in blocks.items():
                held[to][j] += contributors
    for w in range(p):
        assert list(held[w]) == [w]
        assert sorted(held[w][w]) == list(range(p))


@pytest.mark.parametrize("p", ALL)
def test_messages_leave_as_early_as_nothing_comes_for_their_blocks(p):
    for w in range(p):
        rounds, leave = schedule.spar_reduce_scatter(p, w), schedule.leave_before(p, w)
        assert list(leave) == sorted(leave)
        for number, r in enumerate(rounds):
            waited_for = min(i for i, count in enumerate(leave) if count > number)  # this round's not, nor later ones'
            assert waited_for <= number
            assert not any(set(r.sends) & set(later.receives) for later in rounds[waited_for:number])
            if waited_for > 0:
                assert set(r.sends) & set(rounds[waited_for - 1].receives)  # earlier would be too early
    assert schedule.leave_before(6, 0) == [2, 2, 3]
    assert schedule.leave_before(8, 3) == [1, 2, 3]


@pytest.mark.parametrize("p", ALL)
def test_gather_brings_every_block_everywhere(p):
    held = [{w} for w in range(p)]
    everyone = [schedule.gather(p, w) for w in range(p)]
    for number in range(schedule.ceil_log2(p)):
        assert all(set(r[number].sends) <= held[w] for w, r in enumerate(everyone))
        held = [held[w] | set(r[number].receives) for w, r in enumerate(everyone)]
    assert all(blocks == set(range(p)) for blocks in held)


@pytest.mark.parametrize(("n", "k", "p"), [(0, 0, 3), (10, 3, 4), (14_728_266, 147_283, 6), (5, 100, 7), (1, 1, 17)])
def test_blocks_and_budgets_add_up(n, k, p):
    bounds, budgets = schedule.cut_blocks(n, k, p)
    assert (bounds[0], bounds[-1], sum(budgets)) == (0, n, k)
    assert np.all(np.diff(bounds) >= 0)
    assert max(budgets) - min(budgets) <= 1


def test_teams_and_peers():
    layout = schedule.Teams(6, 2)
    assert (layout.team_of(4), layout.peers_of(4), layout.place(4)) == ((3, 4, 5), (1, 4), (1, 1))
    assert schedule.team_counts(12) == [1, 2, 3, 4, 6, 12]
