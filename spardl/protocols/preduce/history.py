"""The group history: which groups there were, and who has had to do with whom lately.

The *sync graph* connects workers that were in one of the last groups together. Where it falls apart, models of one part
learn nothing of the others.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from spardl import saved
from spardl.protocols.preduce.sync_graph import SyncGraph


def default_window(ranks: int, group: int) -> int:
    """Three times as many groups as it takes to connect all."""
    return 3 * -(-(ranks - 1) // max(1, group - 1))


class GroupHistory:
    """Of N ranks. ``window``: how many groups the sync graph is made of."""

    def __init__(self, ranks: int, window: int = 1) -> None:
        self._recent: deque[tuple[int, ...]] = deque(maxlen=max(1, window))
        self.graph = SyncGraph(ranks)

    def set_window(self, window: int) -> None:
        self._recent = deque(self._recent, maxlen=max(1, window))

    @property
    def recent(self) -> Sequence[tuple[int, ...]]:
        return self._recent

    def add(self, members: tuple[int, ...]) -> None:
        self._recent.append(members)
        self.graph.add(members)

    def components(self, present: Iterable[int]) -> dict[int, int]:
        """By rank that is present, queued now or in one of the last groups: which part of the sync graph it is in.

        Equal numbers are in one part. ``present``: those queued now. Of a rank that has gone its groups remain: what
        it has learned there has spread.
        """
        parent: dict[int, int] = {rank: rank for rank in present}

        def root(rank: int) -> int:
            while parent[rank] != rank:
                parent[rank] = parent[parent[rank]]
                rank = parent[rank]
            return rank

        for members in self._recent:
            for rank in members:
                parent.setdefault(rank, rank)
            first = root(members[0])
            for rank in members[1:]:
                parent[root(rank)] = first
        return {rank: root(rank) for rank in parent}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"recent": [list(members) for members in self._recent], **self.graph.state()}

    @classmethod
    def from_state(cls, state: Any, ranks: int) -> "GroupHistory":
        """Raises ValueError if ``state`` of so many ranks cannot have returned that."""
        history = cls(ranks)
        recent = saved.sequence(saved.part(state, "recent"), "recent groups")
        for members in recent:
            for rank in saved.sequence(members, "a group"):
                saved.integer(rank, "a rank", 0, ranks - 1)
            if not members or list(members) != sorted(set(members)):
                raise saved.unfit("a group", "to have each of its ranks once, in order", members)
        history._recent = deque(map(tuple, recent))
        history.graph = SyncGraph.from_state(state, ranks)
        return history

    def become(self, other: "GroupHistory") -> None:
        """Goes on from another, in place; with as many recent groups as fit."""
        self._recent.clear()
        self._recent.extend(other.recent)
        self.graph = other.graph
