"""Hop against chance: any graph, any setting, whoever is slow: nobody gets too far ahead, and nobody waits for ever."""

import random
from dataclasses import replace
from fractions import Fraction

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.hop_world import N, replicas

from spardl.graphs import graph
from spardl.protocols.hop.settings import ORDERS, Settings, Skip
from spardl.runtime.loopback import Loopback
from spardl.runtime.network import cluster
from spardl.runtime.virtual import virtual

seeds = st.integers(0, 2**32 - 1)


@st.composite
def directed(draw, least=1, most=10):
    """A strongly connected graph: a ring through all ranks, and some edges more."""
    ranks = draw(st.integers(least, most))
    order = draw(st.permutations(range(ranks)))
    made = networkx.DiGraph()
    made.add_nodes_from(range(ranks))
    if ranks > 1:
        made.add_edges_from(zip(order, [*order[1:], order[0]], strict=True))
        pairs = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(lambda pair: pair[0] != pair[1])
        made.add_edges_from(draw(st.lists(pairs, max_size=2 * ranks)))
    return graph(made, ranks, weights="uniform")


@st.composite
def legal(draw, on):
    """Any setting that this graph allows."""
    fewest = min(map(len, on.inward))
    backup = draw(st.integers(0, fewest))
    staleness = draw(st.one_of(st.none(), st.integers(0, 4)))
    tokens = backup > 0 or draw(st.booleans())
    max_gap = draw(st.integers(1, 5)) if tokens else None
    skips = tokens and (backup > 0 or staleness is not None) and draw(st.booleans())
    skip = Skip(draw(st.integers(2, 4)), draw(st.integers(2, 6))) if skips else None
    reuse = staleness is not None and draw(st.booleans())
    return Settings(max_gap, backup, staleness, reuse, skip, draw(st.sampled_from(ORDERS)))


def bound_of(on, asked):
    step = None if asked.backup else (asked.staleness or 0) + 1
    return on.gap_bound(asked.max_gap, step)


@given(st.data(), directed(), seeds)
@settings(max_examples=1500)
def test_every_legal_setting_ends_and_keeps_the_bounds(data, on, seed):
    asked = data.draw(legal(on))
    counts = [data.draw(st.integers(0, 8))] * on.ranks
    made, programs, watched = replicas(counts, random.Random(seed), on, asked)
    Loopback(programs, seed=seed).run()
    for replica, count in zip(made, counts, strict=True):
        assert replica.training.iteration >= count
    assert (watched.gaps <= bound_of(on, asked)).all(), (watched.gaps, bound_of(on, asked))
    if asked.max_gap is not None:
        for rank, worker in enumerate(watched.workers):
            assert worker.intake.queue.most <= (1 + asked.max_gap) * len(on.inward[rank])


@given(st.data(), directed(), seeds)
@settings(max_examples=800)
def test_ranks_may_leave_when_they_like(data, on, seed):
    asked = data.draw(legal(on))
    counts = data.draw(st.lists(st.integers(0, 6), min_size=on.ranks, max_size=on.ranks))
    made, programs, _ = replicas(counts, random.Random(seed), on, asked)
    Loopback(programs, seed=seed).run()
    for replica, count in zip(made, counts, strict=True):
        assert replica.training.iteration >= count


@given(st.data(), directed(), seeds)
@settings(max_examples=200)
def test_tokens_say_how_far_others_are(data, on, seed):
    """T-HOP-4: size(TokenQ(j→i)) = Iter(j) − Iter(i) + max_gap, when everything that was posted has come."""
    asked = data.draw(legal(on).filter(lambda asked: asked.max_gap is not None))
    _, programs, watched = replicas([6] * on.ranks, random.Random(seed), on, asked)
    checked = [0]

    def look():
        for worker in watched.workers:
            for giver, told in worker.tokens.iterations.items():
                assert worker.tokens.size(giver) == told - worker.iteration + asked.max_gap
                assert told <= watched.workers[giver].iteration
                checked[0] += 1

    watched.look = look
    Loopback(programs, seed=seed).run()
    assert checked[0] or not any(on.inward)


@pytest.mark.parametrize("name", ["ring", "ring-based", "complete", "exponential", "hypercube", "one-peer-exponential"])
@pytest.mark.parametrize("order", ORDERS)
def test_doubly_stochastic_graphs_keep_the_sum_of_all_models(name, order):
    for seed in range(6):
        on = graph(name, 8 if name != "complete" else 6)
        made, programs, _ = replicas([7] * on.ranks, random.Random(seed), on, Settings(order=order))
        Loopback(programs, seed=seed).run()
        for element in range(N):
            assert sum(r.model[element] for r in made) == sum((r.moved[element] for r in made), Fraction(0))


def test_the_complete_graph_is_an_average_of_all():
    on = graph("complete", 5, weights="uniform")
    made, programs, _ = replicas([4] * 5, random.Random(1), on, Settings(order="serial"))
    Loopback(programs, seed=1).run()
    for step in range(4):
        assert len({replica.models[step] for replica in made}) == 1


@pytest.mark.parametrize("staleness", [1, 3, 5])
def test_a_stuck_neighbour_stops_a_worker_after_its_staleness(staleness):
    """T-HOP-1: A is stuck after its update 0; the last iteration that B reaches is s + 1."""
    on = graph("complete", 2)
    asked = Settings(None, 0, staleness, order="parallel")
    made, programs, watched = replicas([50, 50], random.Random(0), on, asked, limit=20.0, slowness=(1,))
    never = made[0].train(50, np.random.default_rng(0), 1, pace=1e6)
    with pytest.raises(Exception, match="Hop: the neighbours have not come"):
        virtual([replace(programs[0], training=never), programs[1]], network=cluster(2))
    assert watched.workers[1].iteration == staleness + 1
    assert watched.workers[0].iteration == 0
