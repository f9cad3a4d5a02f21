"""Sparse all-reduce for data-parallel training on slow or uneven clusters.

Names that need MPI are loaded when they are first used, so that importing spardl does not initialise it; and so are
graphs and virtual time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spardl.effects import Allreduce, Exchange, Flush, Recv, Send
from spardl.errors import Deadlock, NonFiniteGradient, OutOfStep, PeerError, PeerTimeout, ReplicasDiffer, WireError
from spardl.revision import VERSION
from spardl.runtime.loopback import loopback
from spardl.sparse import SparseVector

if TYPE_CHECKING:
    from spardl.allgather import allgather
    from spardl.allreduce import SparseAllreduce
    from spardl.graphs import Graph, graph
    from spardl.runtime.mpi import run
    from spardl.runtime.virtual import virtual

__version__ = VERSION

__all__ = [
    "Allreduce",
    "Deadlock",
    "Exchange",
    "Flush",
    "Graph",
    "NonFiniteGradient",
    "OutOfStep",
    "PeerError",
    "PeerTimeout",
    "Recv",
    "ReplicasDiffer",
    "Send",
    "SparseAllreduce",
    "SparseVector",
    "WireError",
    "allgather",
    "graph",
    "loopback",
    "run",
    "virtual",
]

_LATE = {"Graph": "spardl.graphs", "graph": "spardl.graphs", "virtual": "spardl.runtime.virtual"}  # few need them
_NEEDS_MPI = {
    "SparseAllreduce": "spardl.allreduce",
    "allgather": "spardl.allgather",
    "run": "spardl.runtime.mpi",
}


def __getattr__(name: str) -> Any:
    if name in _NEEDS_MPI:
        import_module("spardl.runtime.library")
    elif name not in _LATE:
        raise AttributeError(f"module 'spardl' has no attribute {name!r}")
    value = getattr(import_module((_NEEDS_MPI | _LATE)[name]), name)
    globals()[name] = value  # also displaces the submodule of the same name
    return value
