"""The graphs that have a name: a function for each, from a number of ranks to networkx graphs."""

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any, NamedTuple

from spardl.graphs.library import nx
from spardl.schedule import ceil_log2, is_power_of_two

_TRIES = 10_000  # of a few per cent each, where the degree is 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a graph is asked for."""

    ranks: int
    hosts: tuple[Hashable, ...] | None = None  # by rank
    degree: int | None = None
    seed: int = 0


def by_host(hosts: Sequence[Hashable]) -> list[list[int]]:
    """The ranks of each host, hosts in the order of their first ranks."""
    groups: dict[Hashable, list[int]] = {}
    for rank, host in enumerate(hosts):
        groups.setdefault(host, []).append(rank)
    return list(groups.values())


def _ring(wanted: Wanted) -> list[Any]:
    """Neighbours on both sides."""
    return [nx.circulant_graph(wanted.ranks, [1])]


def _ring_based(wanted: Wanted) -> list[Any]:
    """A ring, and everyone's opposite."""
    return [nx.circulant_graph(wanted.ranks, [1, wanted.ranks // 2])]


def _double_ring(wanted: Wanted) -> list[Any]:
    """Two ring-based graphs joined node to node.

    Ranks of one host come one after the other, first the two that are joined, then along the rings: so the joints and
    most of the rings' edges stay within a host.
    """
    half = nx.circulant_graph(wanted.ranks // 2 or 1, [1, wanted.ranks // 4])
    both = nx.cartesian_product(half, nx.path_graph(min(wanted.ranks, 2)))
    order = [rank for group in by_host(wanted.hosts or [0] * wanted.ranks) for rank in group]
    return [nx.relabel_nodes(both, dict(zip(sorted(both), order, strict=True)))]


def _hosts(wanted: Wanted) -> list[Any]:
    """Complete within a host, and a ring of the hosts' first ranks: figure 21 (b) of Hop's paper."""
    if wanted.hosts is None and wanted.ranks > 1:
        raise ValueError("graph: hosts: expected hosts=, which says for every rank where it is, got None")
    groups = by_host(wanted.hosts or [0])
    graph = nx.empty_graph(wanted.ranks)
    for group in groups:
        graph.add_edges_from(combinations(group, 2))
    nx.add_cycle(graph, [group[0] for group in groups])
    return [graph]


def _circulant(ranks: int, distances: Sequence[int]) -> Any:
    """Directed, unlike networkx's."""
    graph = nx.empty_graph(ranks, create_using=nx.DiGraph)
    graph.add_edges_from((rank, (rank + distance) % ranks) for rank in range(ranks) for distance in distances)
    return graph


def _distances(ranks: int) -> list[int]:
    return [1 << i for i in range(ceil_log2(ranks))]


def _exponential(wanted: Wanted) -> list[Any]:
    """To those at distances 1, 2, 4, …."""
    return [_circulant(wanted.ranks, _distances(wanted.ranks))]


def _one_peer_exponential(wanted: Wanted) -> list[Any]:
    """Likewise, one distance after the other: one message per rank and iteration."""
    return [_circulant(wanted.ranks, [distance]) for distance in _distances(wanted.ranks) or [0]]


def _hypercube(wanted: Wanted) -> list[Any]:
    """Those whose number differs in one bit."""
    graph = nx.empty_graph(wanted.ranks)
    graph.add_edges_from((rank, rank ^ bit) for rank in graph for bit in _distances(wanted.ranks))
    return [graph]


def _rows(ranks: int) -> int:
    """Of the torus that is as square as possible."""
    return max(rows for rows in range(1, math.isqrt(ranks) + 1) if ranks % rows == 0)


def _torus(wanted: Wanted) -> list[Any]:
    """Neighbours in rows and columns that are rings; ranks row by row."""
    rows = _rows(wanted.ranks)
    grid = nx.grid_2d_graph(rows, wanted.ranks // rows, periodic=True)
    return [nx.convert_node_labels_to_integers(grid, ordering="sorted")]


def _random_regular(wanted: Wanted) -> list[Any]:
    """Any connected graph where all have as many neighbours; the first that is found from the seed."""
    degree = _degree(wanted)
    generator = random.Random(wanted.seed)
    for _ in range(_TRIES):
        graph = nx.random_regular_graph(degree, wanted.ranks, seed=generator)
        if nx.is_connected(graph):
            return [graph]
    raise ValueError(f"graph: random-regular: none of {_TRIES:,} graphs of degree {degree} was connected")


def _degree(wanted: Wanted) -> int:
    """By default 3, as in the ring-based graph, and 4 where the number of ranks is odd."""
    ranks, degree = wanted.ranks, wanted.degree
    if degree is None:
        return min(ranks - 1, 3 + ranks % 2)
    least = min(ranks - 1, 2)
    if not least <= degree < ranks or degree * ranks % 2:
        even = ", and even since the number of ranks is odd" if ranks % 2 else ""
        raise ValueError(f"graph: degree: expected {least} to {ranks - 1}{even}, got {degree}")
    return degree


def _complete(wanted: Wanted) -> list[Any]:
    return [nx.complete_graph(wanted.ranks)]


def _star(wanted: Wanted) -> list[Any]:
    """Everyone and rank 0."""
    return [nx.star_graph(wanted.ranks - 1)]


class _Kind(NamedTuple):
    """How a graph is built, and for how many ranks; one rank always works."""

    build: Callable[[Wanted], list[Any]]  # the graphs of one period
    fits: Callable[[int], bool] = lambda ranks: True
    sizes: str = ""


_KINDS = {
    "ring": _Kind(_ring),
    "ring-based": _Kind(_ring_based, lambda ranks: ranks % 2 == 0, "an even number of ranks"),
    "double-ring": _Kind(_double_ring, lambda ranks: ranks % 4 == 0 or ranks == 2, "2 ranks or a multiple of 4"),
    "hosts": _Kind(_hosts),
    "exponential": _Kind(_exponential),
    "one-peer-exponential": _Kind(_one_peer_exponential),
    "hypercube": _Kind(_hypercube, is_power_of_two, "a power of two of ranks"),
    "torus": _Kind(_torus, lambda ranks: _rows(ranks) > 1, "rows × columns of ranks, at least two of each"),
    "random-regular": _Kind(_random_regular),
    "complete": _Kind(_complete),
    "star": _Kind(_star),
}
NAMES = tuple(_KINDS)


def fitting(ranks: int) -> list[str]:
    """The names of the graphs that there are for this number of ranks."""
    return [name for name in NAMES if _fits(name, ranks)]


def build(name: str, wanted: Wanted) -> list[Any]:
    """The networkx graphs of one period, or ValueError if there is no such graph."""
    if name not in _KINDS:
        raise ValueError(f"graph: expected one of {', '.join(NAMES)}, got {name!r}")
    ranks = wanted.ranks
    if not _fits(name, ranks):
        below = next(size for size in range(ranks, 0, -1) if _fits(name, size))
        above = next(size for size in count(ranks) if _fits(name, size))
        raise ValueError(f"graph: {name}: expected {_KINDS[name].sizes}, got {ranks}; {below} and {above} would do")
    if wanted.degree is not None and name != "random-regular":
        raise ValueError(f"graph: {name}: expected no degree, got {wanted.degree}; it is for random-regular")
    return _KINDS[name].build(wanted)


def _fits(name: str, ranks: int) -> bool:
    return ranks == 1 or _KINDS[name].fits(ranks)
