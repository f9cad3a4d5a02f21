"""All of Hop's processes of one rank."""

from typing import Any

from spardl.effects import Process
from spardl.graphs import Graph
from spardl.protocols.hop.notes import WORKER
from spardl.protocols.hop.settings import Settings
from spardl.protocols.hop.sparse_part import SparsePart
from spardl.protocols.hop.sparse_worker import SparseWorker
from spardl.protocols.hop.worker import Part, Worker
from spardl.protocols.liveness import services
from spardl.runtime.process import Program


def hop(me: int, graph: Graph, part: Part, settings: Settings, *, training: Process[Any] | None = None) -> Program:
    """A ``SparsePart`` makes it sparse."""
    settings.require_legal(graph)
    worker = (
        SparseWorker(me, graph, settings, part) if isinstance(part, SparsePart) else Worker(me, graph, settings, part)
    )
    return Program({WORKER: worker.run()}, services(me, graph.ranks), training)
