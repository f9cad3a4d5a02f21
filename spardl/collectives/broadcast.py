"""Broadcast of bytes from position 0 along a binomial tree: ⌈log₂P⌉ rounds."""

from typing import Any

from spardl import schedule
from spardl.effects import Bytes, Collective, Recv, Send


def broadcast(ranks: int, rank: int, payload: Any) -> Collective[Bytes]:
    """Rank 0's ``payload`` on every rank; the others pass anything."""
    parent, children = schedule.binomial_tree(ranks, rank)
    if parent is not None:
        payload = yield Recv(parent, "broadcast")
    for child in children:
        yield Send(child, payload, "broadcast")
    return payload  # type: ignore[no-any-return]
