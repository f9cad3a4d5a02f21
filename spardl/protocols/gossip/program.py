"""All of gossip's processes of one rank."""

from typing import Any

from spardl.effects import Process
from spardl.graphs import Graph
from spardl.protocols.gossip.notes import WORKER
from spardl.protocols.gossip.worker import Part, Worker
from spardl.protocols.liveness import services
from spardl.runtime.process import Program


def gossip(me: int, graph: Graph, part: Part, *, seed: int = 0, training: Process[Any] | None = None) -> Program:
    return Program({WORKER: Worker(me, graph, part, seed).run()}, services(me, graph.ranks), training)
