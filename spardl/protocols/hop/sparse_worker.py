"""A worker whose neighbours keep copies of its model: who finds one damaged gets it whole."""

from typing import Any

from spardl.effects import Post, Process
from spardl.graphs import Graph
from spardl.protocols.hop.notes import WORKER, SendWhole
from spardl.protocols.hop.settings import Settings
from spardl.protocols.hop.sparse_part import SparsePart
from spardl.protocols.hop.worker import Worker


class SparseWorker(Worker):
    """Run it with ``run``."""

    def __init__(self, me: int, graph: Graph, settings: Settings, part: SparsePart) -> None:
        super().__init__(me, graph, settings, part)
        self._copies = part
        self._want_whole: set[int] = set()

    def _take_other(self, sender: int, note: Any) -> None:
        if isinstance(note, SendWhole):
            self._want_whole.add(sender)

    def _array_for(self, rank: int, model: Any, array: Any) -> Any:
        if rank not in self._want_whole:
            return array
        self._want_whole.discard(rank)
        return self._copies.write_whole(model)

    def _iterate(self, model: Any) -> Process[None]:
        yield from super()._iterate(model)
        for sender in self._copies.find_damaged():
            yield Post(sender, WORKER, SendWhole())
