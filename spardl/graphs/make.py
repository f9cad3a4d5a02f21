"""``spardl.graph``: the one way to make a graph, where everything about it is checked."""

from collections.abc import Hashable, Sequence
from operator import index
from typing import Any

import numpy as np

from spardl.graphs.given import check_connected, read
from spardl.graphs.names import Wanted, build
from spardl.graphs.topology import Graph
from spardl.graphs.weights import RULES, Sends


def graph(
    name_or_graph: Any,
    ranks: int,
    *,
    hosts: Sequence[Hashable] | None = None,
    weights: str = "metropolis",
    degree: int | None = None,
    seed: int = 0,
) -> Graph:
    """The communication graph of this name; or one that is given, checked and with weights.

    name_or_graph: ring, ring-based, double-ring, hosts, exponential, one-peer-exponential, hypercube, torus,
        random-regular, complete or star; or a networkx graph of the nodes 0, 1, …; or by rank a list of those that it
        sends to; or a NumPy matrix whose entry [i, j] is positive where i sends to j.
    hosts: by rank, the host that it is on, a name or a number. "hosts" needs it; "double-ring" joins ranks of one host
        first.
    weights: "metropolis": doubly stochastic (on directed graphs, Sinkhorn's); "uniform": all that a rank receives
        counts the same, and so does its own.
    degree, seed: of "random-regular"; the degree is 3 by default, and 4 if the number of ranks is odd.

    Raises ValueError if the graph does not fit the number of ranks, or does not connect all of them.
    """
    if weights not in RULES:
        raise ValueError(f"graph: weights: expected one of {', '.join(RULES)}, got {weights!r}")
    wanted = Wanted(_checked_ranks(ranks), _checked_hosts(hosts, ranks), degree, seed)
    if isinstance(name_or_graph, str):
        name = name_or_graph
        period = [read(one, wanted.ranks) for one in build(name, wanted)]
    else:
        name = "given"
        period = [read(name_or_graph, wanted.ranks)]
    check_connected(np.logical_or.reduce(period))
    return _weighted(name, period, weights)


def _weighted(name: str, period: list[Sends], rule: str) -> Graph:
    matrices = [RULES[rule](sends) for sends in period]
    if len(matrices) == 1:
        return Graph(name, matrices[0])
    parts = tuple(Graph(f"{name} {i + 1}/{len(matrices)}", matrix) for i, matrix in enumerate(matrices))
    return Graph(name, np.mean(matrices, axis=0), parts)


def _checked_ranks(ranks: int) -> int:
    if isinstance(ranks, bool) or not hasattr(ranks, "__index__") or ranks < 1:
        raise ValueError(f"graph: ranks: expected a whole number of at least 1, got {ranks!r}")
    return index(ranks)


def _checked_hosts(hosts: Sequence[Hashable] | None, ranks: int) -> tuple[Hashable, ...] | None:
    if hosts is None:
        return None
    if isinstance(hosts, str) or len(hosts) != ranks:
        raise ValueError(f"graph: hosts: expected the host of each of {ranks} ranks, got {hosts!r}")
    return tuple(hosts)
