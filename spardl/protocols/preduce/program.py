"""All of Partial Reduce's processes of one rank."""

from typing import Any

from spardl.effects import Process
from spardl.protocols.liveness import services
from spardl.protocols.preduce.controller import Controller
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.notes import CONTROLLER, WORKER
from spardl.protocols.preduce.settings import Settings
from spardl.protocols.preduce.worker import Part, Worker
from spardl.runtime.process import Program

LEAD = 0  # the controller's rank


def preduce(
    me: int,
    ranks: int,
    part: Part,
    settings: Settings,
    *,
    history: GroupHistory | None = None,
    training: Process[Any] | None = None,
) -> Program:
    """``history``: of groups, which the controller's rank keeps."""
    processes: dict[str, Process[Any]] = {WORKER: Worker(me, LEAD, part).run()}
    if me == LEAD:
        processes[CONTROLLER] = Controller(ranks, settings, history).run()
    return Program(processes, services(me, ranks), training)
