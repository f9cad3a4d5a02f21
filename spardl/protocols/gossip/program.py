"""All of gossip's processes of one rank."""

from typing import Any

from spardl.effects import Process
from spardl.graphs import Graph
from spardl.protocols.gossip.notes import WORKER
from spardl.protocols.gossip.worker import Part, Worker
from spardl.protocols.liveness import PULSE, ROLL_CALL, pulse, roll_call
from spardl.runtime.process import Program


def gossip(me: int, graph: Graph, part: Part, *, seed: int = 0, training: Process[Any] | None = None) -> Program:
    services: dict[str, Process[Any]] = {PULSE: pulse(), ROLL_CALL: roll_call(me, range(graph.ranks))}
    return Program({WORKER: Worker(me, graph, part, seed).run()}, services, training)
