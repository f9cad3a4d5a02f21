"""Broadcast along a binomial tree."""

import pytest

import spardl
from spardl import schedule
from spardl.collectives.broadcast import broadcast


@pytest.mark.parametrize("ranks", range(1, 18))
def test_everyone_gets_it_once(ranks):
    results = spardl.loopback([broadcast(ranks, rank, b"hello" if rank == 0 else None) for rank in range(ranks)])
    assert [bytes(result) for result in results] == [b"hello"] * ranks


@pytest.mark.parametrize("p", range(1, 66))
def test_tree(p):
    depth = {0: 0}
    senders = {}
    for w in range(p):
        parent, children = schedule.binomial_tree(p, w)
        assert (parent is None) == (w == 0)
        for number, child in enumerate(children, 1):
            assert child not in senders
            senders[child] = w
            assert schedule.binomial_tree(p, child)[0] == w
            depth[child] = depth[w] + number  # a rank sends one message at a time
    assert set(senders) == set(range(1, p))
    assert max(depth.values()) == schedule.ceil_log2(p)
