"""The signal queue: who is ready, in the order of their signals."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spardl.protocols.preduce.notes import Signal


class Queued(NamedTuple):
    rank: int
    since: float  # seconds of the controller's clock
    place: int  # of all signals that there have been
    signal: Signal


class SignalQueue:
    """First come, first served, but for ranks that are silent, whose signals wait until they are back."""

    def __init__(self) -> None:
        self._queued: dict[int, Queued] = {}  # by rank, in the order of their places
        self._silent: dict[int, Queued] = {}
        self._signals = 0

    def __len__(self) -> int:
        return len(self._queued)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._queued.values())

    def __contains__(self, rank: int) -> bool:
        return rank in self._queued

    def add(self, rank: int, signal: Signal, now: float) -> None:
        self._queued[rank] = Queued(rank, now, self._signals, signal)
        self._signals += 1

    def take(self, ranks: Iterable[int]) -> list[Queued]:
        return [self._queued.pop(rank) for rank in ranks]

    def put_back(self, taken: Iterable[Queued]) -> None:
        """Where they were, since nothing has come of it."""
        together = [*self._queued.values(), *taken]
        self._queued = {queued.rank: queued for queued in sorted(together, key=lambda queued: queued.place)}

    def set_aside(self, rank: int) -> None:
        """It is silent."""
        if rank in self._queued:
            self._silent[rank] = self._queued.pop(rank)

    def come_back(self, rank: int) -> None:
        if rank in self._silent:
            self.put_back([self._silent.pop(rank)])
