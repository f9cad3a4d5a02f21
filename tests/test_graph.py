"""Communication graphs: their figures, what holds for all of them, how far ranks can be apart, what is refused."""

import re
import subprocess
import sys
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spardl
from spardl.graphs import NAMES, UNREACHED, fitting

SIZES = range(1, 17)


def make(name, ranks, **options):
    return spardl.graph(name, ranks, hosts=[rank // 3 for rank in range(ranks)], **options)


def directed_ring(ranks):
    return spardl.graph([[(rank + 1) % ranks] for rank in range(ranks)], ranks)


@st.composite
def adjacencies(draw, most=8):
    """Strongly connected: a ring in some order, and any other edges."""
    ranks = draw(st.integers(1, most))
    order = draw(st.permutations(range(ranks)))
    sends = np.array(draw(st.lists(st.booleans(), min_size=ranks**2, max_size=ranks**2))).reshape(ranks, ranks)
    sends[order, np.roll(order, 1)] = True
    return sends | sends.T if draw(st.booleans()) else sends


def check(graph):
    """What holds for every graph."""
    ranks = range(graph.ranks)
    edges = {(i, j) for i in ranks for j in graph.outward[i]}
    assert edges == {(i, j) for j in ranks for i in graph.inward[j]}
    assert all(i != j for i, j in edges)
    for neighbours in (*graph.inward, *graph.outward):
        assert list(neighbours) == sorted(set(neighbours))
    assert {(int(j), int(i)) for i, j in np.argwhere(graph.weights) if i != j} == edges
    network = nx.DiGraph(edges)
    network.add_nodes_from(ranks)
    assert nx.is_strongly_connected(network)
    assert graph.diameter == nx.diameter(network)
    for part in (graph, *(graph.at(k) for k in range(graph.period))):
        np.testing.assert_allclose(part.weights.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert part.weights.min() >= 0
        assert part.weights.diagonal().min() > 0
        assert not part.weights.flags.writeable
    assert 0 <= graph.spectral_gap <= 1 + 1e-12


@pytest.mark.parametrize("weights", ["metropolis", "uniform"])
@pytest.mark.parametrize("name", NAMES)
def test_every_name_for_every_number_of_ranks(name, weights):
    for ranks in SIZES:
        if name not in fitting(ranks):
            with pytest.raises(ValueError, match=rf"graph: {name}: expected .*, got {ranks}; \d+ and \d+ would do"):
                make(name, ranks)
            continue
        graph = make(name, ranks, weights=weights)
        assert (graph.name, graph.ranks) == (name, ranks)
        check(graph)
        assert graph.is_doubly_stochastic or weights == "uniform"


@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_are_offered_instead_work(name):
    for ranks in SIZES:
        if name not in fitting(ranks):
            with pytest.raises(ValueError, match="would do") as refusal:
                make(name, ranks)
            below, above = re.search(r"; (\d+) and (\d+) would do", str(refusal.value)).groups()
            assert int(below) < ranks < int(above)
            check(make(name, int(below)))
            check(make(name, int(above)))


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_is_alone(name):
    graph = spardl.graph(name, 1)
    assert graph.inward == graph.outward == ((),)
    assert graph.weights.tolist() == [[1.0]]
    assert (graph.period, graph.diameter, graph.spectral_gap) == (1, 0, 1.0)
    assert graph.gap_bound(2).tolist() == [[0]]


def test_which_sizes_fit():
    fits = {name: [ranks for ranks in SIZES if name in fitting(ranks)] for name in NAMES}
    assert fits["ring-based"] == [1, 2, 4, 6, 8, 10, 12, 14, 16]
    assert fits["double-ring"] == [1, 2, 4, 8, 12, 16]
    assert fits["hypercube"] == [1, 2, 4, 8, 16]
    assert fits["torus"] == [1, 4, 6, 8, 9, 10, 12, 14, 15, 16]
    assert all(
        fits[name] == list(SIZES) for name in ("ring", "exponential", "one-peer-exponential", "complete", "star")
    )


def test_neighbours():
    def outward(name, ranks, rank=0):
        return make(name, ranks).outward[rank]

    assert outward("ring", 8) == (1, 7)
    assert outward("ring-based", 8) == (1, 4, 7)
    assert outward("double-ring", 16) == (1, 2, 8, 14)  # the other ring; along its own; the opposite of that
    assert outward("exponential", 12) == (1, 2, 4, 8)
    assert outward("hypercube", 8, 5) == (1, 4, 7)
    assert outward("torus", 12, 5) == (1, 4, 6, 9)  # 3 rows of 4
    assert outward("complete", 4) == (1, 2, 3)
    assert make("star", 4).outward == ((1, 2, 3), (0,), (0,), (0,))
    assert make("hosts", 8).outward == ((1, 2, 3, 6), (0, 2), (0, 1), (0, 4, 5, 6), (3, 5), (3, 4), (0, 3, 7), (6,))


@pytest.mark.parametrize("weights", ["metropolis", "uniform"])
def test_spectral_gap_of_the_ring_based_graph(weights):
    graph = spardl.graph("ring-based", 8, weights=weights)
    assert set(graph.weights[0]) == {0, 0.25}
    assert graph.spectral_gap == pytest.approx(0.5)
    assert spardl.graph("ring-based", 16, weights=weights).spectral_gap == pytest.approx(0.1464, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "hosts", "gap"), [("ring-based", None, 0.6667), ("hosts", [0, 0, 1, 1, 2, 2, 2, 2], 0.2682)]
)
def test_spectral_gaps_that_the_paper_gives_are_those_without_self_loops(name, hosts, gap):
    """Figure 21 of Hop's paper, (a) and (b): uniform weights, λ₂ with its sign."""
    graph = spardl.graph(name, 8, hosts=hosts)
    neighbours = (graph.weights > 0) & ~np.eye(8, dtype=bool)
    values = np.sort(np.linalg.eigvals(neighbours / neighbours.sum(axis=1, keepdims=True)).real)
    assert 1 - values[-2] == pytest.approx(gap, abs=5e-5)


def test_spectral_gap_of_known_graphs():
    assert spardl.graph("complete", 5).spectral_gap == pytest.approx(1)
    assert spardl.graph("ring", 6).spectral_gap == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 3)) / 3)
    assert spardl.graph("hypercube", 16).spectral_gap == pytest.approx(2 / 5)
    assert directed_ring(8).spectral_gap == pytest.approx(1 - np.cos(np.pi / 8))  # |1 + e^(iπ/4)| / 2


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
def test_one_peer_exponential_averages_exactly_for_powers_of_two(ranks):
    graph = spardl.graph("one-peer-exponential", ranks)
    assert graph.period == ranks.bit_length() - 1
    models = np.random.default_rng(ranks).integers(-100, 100, ranks).astype(float)
    mixed = models
    for iteration in range(graph.period):
        assert not np.array_equal(mixed, np.full(ranks, models.mean()))
        mixed = graph.at(iteration).weights @ mixed
    assert np.array_equal(mixed, np.full(ranks, models.mean()))
    assert graph.spectral_gap == pytest.approx(1)


@pytest.mark.parametrize(("ranks", "second"), [(6, 0.217), (12, 0.209)])
def test_one_peer_exponential_does_not_for_others(ranks, second):
    assert 1 - spardl.graph("one-peer-exponential", ranks).spectral_gap == pytest.approx(second, abs=5e-4)


def test_a_graph_that_varies():
    graph = spardl.graph("one-peer-exponential", 12)
    assert graph.period == 4
    assert graph.inward == spardl.graph("exponential", 12).inward
    for iteration in range(9):
        now = graph.at(iteration)
        assert now.outward[3] == ((3 + 2 ** (iteration % 4)) % 12,)
        assert now.at(iteration + 1) is now
        assert now.period == 1
    assert graph.at(1).diameter == UNREACHED  # even and odd ranks are apart
    assert graph.is_doubly_stochastic
    assert not graph.is_undirected
    np.testing.assert_allclose(graph.weights, sum(graph.at(k).weights for k in range(4)) / 4)


def test_a_fixed_graph_is_the_same_at_all_times():
    graph = spardl.graph("ring", 4)
    assert graph.period == 1
    assert graph.at(7) is graph
    with pytest.raises(AttributeError):
        graph.name = "other"
    with pytest.raises(ValueError, match="read-only"):
        graph.weights[0, 0] = 1


@given(adjacencies())
def test_any_graph_gets_doubly_stochastic_weights(sends):
    graph = spardl.graph(sends, len(sends))
    check(graph)
    np.testing.assert_allclose(graph.weights.sum(axis=0), 1, rtol=0, atol=1e-11)
    assert graph.is_doubly_stochastic
    assert graph.is_undirected == np.array_equal(sends, sends.T)


@given(adjacencies())
def test_uniform_weights_count_all_the_same(sends):
    graph = spardl.graph(sends, len(sends), weights="uniform")
    check(graph)
    for row, inward in zip(graph.weights, graph.inward, strict=True):
        assert set(row[row > 0]) == {1 / (1 + len(inward))}
    assert graph.is_doubly_stochastic == np.allclose(graph.weights.sum(axis=0), 1)


def test_uniform_weights_of_a_star_do_not_keep_the_mean():
    assert not spardl.graph("star", 5, weights="uniform").is_doubly_stochastic
    assert spardl.graph("star", 5).is_doubly_stochastic


@given(adjacencies(5))
def test_directed_weights_are_those_of_sinkhorn(sends):
    if not np.array_equal(sends, sends.T):
        expected = np.array(sends | np.eye(len(sends), dtype=bool), float).T
        for _ in range(3000):
            expected /= expected.sum(axis=0)
            expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(spardl.graph(sends, len(sends)).weights, expected, atol=1e-9)


@pytest.mark.parametrize("ranks", [64, 200])
def test_weights_of_long_rings_are_found(ranks):
    """With a chord Sinkhorn's iteration takes ranks² rounds; with all edges back, weights span tens of decades."""
    ring = np.roll(np.eye(ranks, dtype=bool), 1, axis=1)
    chord = ring.copy()
    chord[0, 2] = True
    for sends in (chord, ring | np.tri(ranks, k=-1, dtype=bool)):
        graph = spardl.graph(sends, ranks)
        assert graph.is_doubly_stochastic
        assert np.array_equal(graph.weights > 0, sends.T | np.eye(ranks, dtype=bool))


# --- hosts


def test_hosts_are_complete_within_and_a_ring_between_their_first_ranks():
    hosts = ["b", "a", "b", "c", "a", "c", "b"]
    graph = spardl.graph("hosts", 7, hosts=hosts)
    for i, j in product(range(7), repeat=2):
        within = i != j and hosts[i] == hosts[j]
        assert (j in graph.outward[i]) == (within or {i, j} in ({0, 1}, {1, 3}, {3, 0}))


def test_one_host_is_complete_and_one_rank_per_host_a_ring():
    assert spardl.graph("hosts", 5, hosts=[0] * 5).outward == spardl.graph("complete", 5).outward
    assert spardl.graph("hosts", 5, hosts=range(5)).outward == spardl.graph("ring", 5).outward


def test_hosts_must_be_known():
    with pytest.raises(ValueError, match="graph: hosts: expected hosts="):
        spardl.graph("hosts", 4)
    for wrong in ([0, 0, 1], "abcd"):
        with pytest.raises(ValueError, match="graph: hosts: expected the host of each of 4 ranks"):
            spardl.graph("hosts", 4, hosts=wrong)


@pytest.mark.parametrize("by_turns", [False, True])
def test_double_ring_joins_ranks_of_one_host_first(by_turns):
    """Four hosts of four ranks: all joints stay within a host, and half of the edges in all."""
    hosts = [rank % 4 if by_turns else rank // 4 for rank in range(16)]
    graph = spardl.graph("double-ring", 16, hosts=hosts)
    within = [[hosts[i] == hosts[j] for j in graph.outward[i]] for i in range(16)]
    assert all(sum(own) == 2 for own in within)
    network = nx.DiGraph([(i, j) for i in range(16) for j in graph.outward[i]])
    assert nx.is_isomorphic(
        network.to_undirected(), nx.cartesian_product(nx.circulant_graph(8, [1, 4]), nx.path_graph(2))
    )


def test_without_hosts_the_double_ring_takes_all_ranks_for_one_host():
    assert spardl.graph("double-ring", 12).outward == spardl.graph("double-ring", 12, hosts=[0] * 12).outward


# --- random graphs


@pytest.mark.parametrize(("ranks", "degree"), [(8, 2), (9, 4), (16, 5), (100, 2), (5, 4), (2, 1)])
def test_random_regular(ranks, degree):
    graph = spardl.graph("random-regular", ranks, degree=degree, seed=3)
    assert {len(neighbours) for neighbours in graph.outward} == {degree}
    assert graph.is_undirected
    check(graph)
    assert graph.outward == spardl.graph("random-regular", ranks, degree=degree, seed=3).outward


def test_random_regular_depends_on_the_seed():
    assert len({spardl.graph("random-regular", 16, seed=seed).outward for seed in range(5)}) > 1


@pytest.mark.parametrize(("ranks", "degree"), [(8, 1), (8, 8), (7, 3), (8, -2), (1, 1)])
def test_degrees_that_do_not_fit(ranks, degree):
    with pytest.raises(ValueError, match=f"graph: degree: expected .*, got {degree}"):
        spardl.graph("random-regular", ranks, degree=degree)


def test_a_degree_is_for_random_graphs_only():
    with pytest.raises(ValueError, match="graph: ring: expected no degree, got 2"):
        spardl.graph("ring", 4, degree=2)


# --- graphs that are given


def test_ways_to_give_a_graph():
    """0 → 1 → 2 → 0, and 0 → 2."""
    edges = [(0, 1), (1, 2), (2, 0), (0, 2)]
    matrix = np.zeros((3, 3))
    for i, j in edges:
        matrix[i, j] = 0.5
    for given_ in (nx.DiGraph(edges), [[1, 2], [2], [0]], [{1, 2}, {2}, {0}], matrix, matrix > 0, matrix + np.eye(3)):
        graph = spardl.graph(given_, 3)
        assert graph.outward == ((1, 2), (2,), (0,))
        assert graph.inward == ((2,), (0,), (0, 1))
    undirected = spardl.graph(nx.Graph(edges), 3)
    assert undirected.is_undirected
    assert undirected.name == "given"


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (np.ones((3, 2)), r"expected a square matrix, got one of shape \(3, 2\)"),
        (np.ones(3), r"expected a square matrix"),
        (np.full((3, 3), np.nan), "finite numbers that are not negative"),
        (np.full((3, 3), np.inf), "finite numbers that are not negative"),
        (-np.ones((3, 3)), "finite numbers that are not negative"),
        (np.full((3, 3), "a"), "finite numbers that are not negative"),
        (np.ones((4, 4)), "expected a graph of 3 ranks, got one of 4"),
        (np.eye(3), "rank 0 cannot reach 1, 2"),
        ([[0], [1], [2]], "rank 0 cannot reach 1, 2"),
        ([[1], [0], []], "rank 0 cannot reach 2"),
        ([[1], [0], [0]], "rank 0 cannot reach 2"),
        ([[1, 2], [2], [1]], "rank 0 cannot be reached from 1, 2"),
        ([[1], [2]], "expected a graph of 3 ranks|expected neighbours from 0 to 1"),
        ([[1], [2], [3]], "expected neighbours from 0 to 2 for rank 2, got 3"),
        ([[1], [2], [-1]], "expected neighbours from 0 to 2 for rank 2, got -1"),
        ([[1], [2], [0.0]], "expected neighbours from 0 to 2 for rank 2, got 0.0"),
        ([1, 2, 0], "expected a list of neighbours for rank 0, got 1"),
        (["1", "2", "0"], "expected a list of neighbours for rank 0, got '1'"),
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], "rank 0 has a neighbour twice; a matrix must be a NumPy array"),
        (nx.DiGraph([(1, 2), (2, 3), (3, 1)]), "expected the nodes 0 to 2, got 1, 2, 3"),
        (nx.DiGraph([("a", "b")]), "expected the nodes 0 to 2, got a, b"),
        (nx.Graph(), "expected the nodes 0 to 2"),
        (None, "expected a name, a networkx graph or an adjacency, got NoneType"),
        ("rings", "expected one of ring, ring-based, .*, got 'rings'"),
    ],
)
def test_damaged_graphs_are_refused(damaged, message):
    with pytest.raises(ValueError, match=f"graph: .*{message}" if "|" not in message else message):
        spardl.graph(damaged, 3)


@pytest.mark.parametrize("ranks", [0, -1, 2.0, "4", None, True])
def test_numbers_of_ranks_that_are_none(ranks):
    with pytest.raises(ValueError, match="graph: ranks: expected a whole number of at least 1"):
        spardl.graph("ring", ranks)


def test_unknown_weights():
    with pytest.raises(ValueError, match="graph: weights: expected one of metropolis, uniform, got 'equal'"):
        spardl.graph("ring", 4, weights="equal")


def test_many_unreachable_ranks_are_not_all_listed():
    with pytest.raises(ValueError, match="rank 0 cannot reach 1, 2, 3, 4, 5, 6, 7, 8 and 91 more"):
        spardl.graph(np.zeros((100, 100)), 100)


# --- how far ranks can be apart


def advance(graph, max_gap, step, stuck, at):
    """Where all ranks end when ``stuck`` stays in iteration ``at`` and everyone else goes on while it may.

    A rank leaves iteration k when it has a model of iteration k + 1 − ``step`` or newer from everyone that sends to it,
    and enters k + 1 with a token of each that it sends to.
    """
    iterations = [0] * graph.ranks

    def may_go(rank):
        k = iterations[rank]
        if rank == stuck and k == at:
            return False
        heard = all(iterations[j] >= k + 1 - step for j in graph.at(k).inward[rank])
        return heard and (max_gap is None or all(k + 1 - iterations[j] <= max_gap for j in graph.outward[rank]))

    while going := [rank for rank in range(graph.ranks) if may_go(rank)]:
        for rank in going:
            iterations[rank] += may_go(rank)  # another may have gone meanwhile; that never hinders this one
    return np.array(iterations)


def largest_gaps(graph, max_gap, step, iterations):
    """By ranks i, j: how far i gets ahead of j, at most, when j is stuck in one of these iterations."""
    rows = [
        np.max([advance(graph, max_gap, step, j, at) - at for at in iterations], axis=0) for j in range(graph.ranks)
    ]
    return np.stack(rows, axis=1)


def brute_force(graph, max_gap, step):
    """Shortest paths by networkx, over arcs along and against the edges."""
    arcs = nx.DiGraph()
    arcs.add_nodes_from(range(graph.ranks))
    for i in range(graph.ranks):
        for j in graph.outward[i]:
            if max_gap is not None and (max_gap < arcs.get_edge_data(j, i, {"weight": UNREACHED})["weight"]):
                arcs.add_edge(j, i, weight=max_gap)
            if step < arcs.get_edge_data(i, j, {"weight": UNREACHED})["weight"]:
                arcs.add_edge(i, j, weight=step)
    lengths = dict(nx.all_pairs_dijkstra_path_length(arcs))
    return np.array([[lengths[j][i] for j in range(graph.ranks)] for i in range(graph.ranks)])


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_gap_bound_of_a_directed_ring(ranks):
    """T-HOP-3: without tokens, whoever sends to a rank can be n − 1 iterations ahead of it."""
    graph = directed_ring(ranks)
    bound = graph.gap_bound(None)
    assert bound.dtype == np.int64
    for rank in range(ranks):
        assert graph.inward[rank] == ((rank - 1) % ranks,)
        assert bound[rank - 1, rank] == ranks - 1
        assert bound[rank, rank - 1] == 1
    assert graph.gap_bound(2)[0, 1] == min(ranks - 1, 2)


@pytest.mark.parametrize("step", [1, 6])
@pytest.mark.parametrize("max_gap", [None, 1, 4])
@pytest.mark.parametrize("name", ["ring", "ring-based", "double-ring", "hosts", "exponential", "star"])
def test_gap_bounds_of_named_graphs(name, max_gap, step):
    graph = make(name, 8)
    np.testing.assert_array_equal(graph.gap_bound(max_gap, step), brute_force(graph, max_gap, step))
    if step == 1 and max_gap is None:
        assert graph.gap_bound(None).max() == graph.diameter


@settings(max_examples=60)
@given(adjacencies(6), st.none() | st.integers(1, 5), st.integers(1, 4))
def test_gap_bounds_are_reached_and_never_exceeded(sends, max_gap, step):
    graph = spardl.graph(sends, len(sends))
    bound = graph.gap_bound(max_gap, step)
    np.testing.assert_array_equal(bound, brute_force(graph, max_gap, step))
    np.testing.assert_array_equal(bound, largest_gaps(graph, max_gap, step, [0, 20]))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("max_gap", [None, 1, 3])
@pytest.mark.parametrize("ranks", [3, 4, 6, 8, 12])
def test_gap_bounds_of_a_graph_that_varies(ranks, max_gap, step):
    graph = spardl.graph("one-peer-exponential", ranks)
    gaps = largest_gaps(graph, max_gap, step, range(20, 20 + graph.period))
    np.testing.assert_array_equal(graph.gap_bound(max_gap, step), gaps)


def test_a_receiver_gets_further_ahead_on_an_edge_that_is_used_once_in_a_period():
    graph, always = (spardl.graph(name, 8) for name in ("one-peer-exponential", "exponential"))
    assert always.gap_bound(None)[1, 0] == 1
    assert graph.gap_bound(None)[1, 0] == graph.period == 3


def test_gap_bounds_of_backup_workers_are_those_of_tokens():
    graph = directed_ring(4)
    assert graph.gap_bound(3, step=None).tolist() == (3 * graph.gap_bound(None).T).tolist()
    assert graph.gap_bound(None, step=None)[0, 1] == UNREACHED


@pytest.mark.parametrize("wrong", [{"max_gap": 0}, {"max_gap": None, "step": 0}])
def test_gap_bounds_of_nothing(wrong):
    with pytest.raises(ValueError, match=r"gap_bound: expected .* of at least 1, or None, got 0"):
        spardl.graph("ring", 4).gap_bound(**wrong)


# --- as a part of spardl


def test_importing_spardl_does_not_import_networkx():
    program = "import sys, spardl, spardl.cli; assert 'networkx' not in sys.modules; spardl.graph('ring', 2)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_networkx_it_says_how_to_get_it():
    program = "import sys; sys.modules['networkx'] = None; import spardl; spardl.graph"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "ImportError: graphs need networkx: pip install 'spardl[graphs]'" in done.stderr


def test_graphs_of_many_ranks():
    graph = spardl.graph("exponential", 512)
    assert (graph.diameter, graph.is_doubly_stochastic) == (9, True)
    assert graph.gap_bound(None).max() == 9
