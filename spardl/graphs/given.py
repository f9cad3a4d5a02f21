"""Graphs from outside: networkx's, lists of neighbours, matrices. Checked here, trusted afterwards."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spardl.graphs.library import nx
from spardl.graphs.weights import Sends

_LISTED = 8  # ranks that a message names


def read(given: Any, ranks: int) -> Sends:
    """Who sends to whom. Self-loops and weights of edges do not count."""
    if isinstance(given, nx.Graph):
        sends = _from_networkx(given, ranks)
    elif isinstance(given, np.ndarray):
        sends = _from_matrix(given)
    elif isinstance(given, Sequence):
        sends = _from_lists(given)
    else:
        raise ValueError(f"graph: expected a name, a networkx graph or an adjacency, got {type(given).__name__}")
    if len(sends) != ranks:
        raise ValueError(f"graph: expected a graph of {ranks} ranks, got one of {len(sends)}")
    np.fill_diagonal(sends, False)
    return sends


def _from_networkx(graph: Any, ranks: int) -> Sends:
    """An edge from u to v: u sends to v."""
    if set(graph) != set(range(ranks)):
        raise ValueError(f"graph: expected the nodes 0 to {ranks - 1}, got {_listed(graph)}")
    sends: Sends = nx.to_numpy_array(graph, nodelist=range(ranks), weight=None) > 0
    return sends


def _from_matrix(matrix: "np.ndarray[Any, Any]") -> Sends:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"graph: expected a square matrix, got one of shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf" or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise ValueError("graph: expected a matrix of finite numbers that are not negative")
    return matrix > 0


def _from_lists(lists: Sequence[Any]) -> Sends:
    """By rank, whom it sends to. A row of a matrix repeats its zeros or ones, so it is not taken for a list."""
    ranks = len(lists)
    sends = np.zeros((ranks, ranks), bool)
    for rank, neighbours in enumerate(lists):
        if isinstance(neighbours, str) or not isinstance(neighbours, Iterable):
            raise ValueError(f"graph: expected a list of neighbours for rank {rank}, got {neighbours!r}")
        listed = list(neighbours)
        wrong = [j for j in listed if not isinstance(j, (int, np.integer)) or not 0 <= j < ranks]
        if wrong:
            raise ValueError(f"graph: expected neighbours from 0 to {ranks - 1} for rank {rank}, got {wrong[0]!r}")
        if len(set(listed)) < len(listed):
            raise ValueError(f"graph: rank {rank} has a neighbour twice; a matrix must be a NumPy array")
        sends[rank, listed] = True
    return sends


def check_connected(sends: Sends) -> None:
    """Every rank must reach every other."""
    graph = nx.from_numpy_array(sends, create_using=nx.DiGraph)
    everyone = set(graph)
    if missed := everyone - {0} - nx.descendants(graph, 0):
        raise ValueError(f"graph: not strongly connected: rank 0 cannot reach {_listed(sorted(missed))}")
    if missed := everyone - {0} - nx.ancestors(graph, 0):
        raise ValueError(f"graph: not strongly connected: rank 0 cannot be reached from {_listed(sorted(missed))}")


def _listed(nodes: Iterable[Any]) -> str:
    named = [str(node) for node in nodes]
    return ", ".join(named[:_LISTED]) + (f" and {len(named) - _LISTED} more" if len(named) > _LISTED else "")
