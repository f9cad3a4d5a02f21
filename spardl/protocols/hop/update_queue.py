"""The update queue: neighbours' models, each with the iteration it is of, until they are taken."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Tagged(NamedTuple):
    sender: int
    iteration: int
    update: Any


class UpdateQueue:
    """One worker's. ``most`` is the most it has ever held."""

    def __init__(self, senders: Iterable[int]) -> None:
        self._held: dict[int, dict[int, Any]] = {sender: {} for sender in senders}  # by sender and iteration
        self.most = 0

    def enqueue(self, iteration: int, sender: int, update: Any) -> None:
        self._held[sender][iteration] = update
        self.most = max(self.most, self.size())

    def dequeue(self, iteration: int | None = None) -> list[Tagged]:
        """All of that iteration, or of any, in the order of senders."""
        taken = []
        for sender, held in self._held.items():
            for tag in [tag for tag in held if iteration in (None, tag)]:
                taken.append(Tagged(sender, tag, held.pop(tag)))
        return taken

    def drop(self, sender: int) -> None:
        """Throws all of this sender's away."""
        self._held[sender].clear()

    def drop_before(self, iteration: int) -> int:
        """Throws older ones away; how many."""
        dropped = 0
        for held in self._held.values():
            for old in [tag for tag in held if tag < iteration]:
                del held[old]
                dropped += 1
        return dropped

    def senders_of(self, iteration: int) -> set[int]:
        return {sender for sender, held in self._held.items() if iteration in held}

    def size(self) -> int:
        return sum(map(len, self._held.values()))
