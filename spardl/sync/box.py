"""Between the training thread, which deposits gradients and collects results, and the thread that communicates."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spardl.errors import PeerTimeout
from spardl.runtime.stall import answering_grace
from spardl.sync.parts import Shift, Sum, Values


class Published(NamedTuple):
    """A round's result, and the terms on which all ranks apply it."""

    result: Sum | Shift
    terms: str


@dataclass(slots=True)
class Metrics:
    """One rank's."""

    contributors: list[int] = field(default_factory=list)  # by round
    staleness: dict[int, int] = field(default_factory=dict)  # rounds between computing and reducing → gradients
    dropped: int = 0  # gradients that were too old
    waited_seconds: float = 0.0  # for results, being too far ahead


def _timed_out(what: str, timeout: float) -> PeerTimeout:
    return PeerTimeout(f"{what} within {timeout:g} s", ranks=())


class GradientBox(ABC):
    """What both kinds have in common. Every method but those for training is called by the communicating thread.

    ``most_ahead``: how many gradients may wait before training does. ``timed_out`` makes the error when it has waited
    too long: whoever runs the engine knows who is missing.
    """

    def __init__(self, most_ahead: int, timeout: float, metrics: Metrics | None = None) -> None:
        self._most_ahead, self._timeout = most_ahead, timeout
        self._changed = threading.Condition()
        self.timed_out: Callable[[str, float], PeerTimeout] = _timed_out
        self._waiting: deque[tuple[int, Values]] = deque()  # version of the weights it was computed with, gradient
        self._taken = 0  # how many of those an attempt at a round holds
        self._results: deque[Published] = deque()
        self.shift: Shift | None = None  # waits for a round that brings it to the whole group
        self.log: dict[int, Sum | Shift] = {}  # results that other ranks may still want
        self._error: BaseException | None = None
        self._closed = False
        self.metrics = Metrics() if metrics is None else metrics

    # -- for training --------------------------------------------------------------------------------------------------

    def deposit(self, grad: Values, version: int) -> None:
        """Hands a gradient in, which was computed with the weights after ``version`` rounds; the box keeps the array.

        Waits while this rank is too far ahead.
        """
        self.wait(self._most_ahead)
        with self._changed:
            self._waiting.append((version, grad))
            self._changed.notify_all()

    def wait(self, most: int = 0) -> None:
        """Until no more than so many gradients wait."""
        started = time.perf_counter()
        patience = self._timeout - answering_grace(self._timeout)
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._error or len(self._waiting) <= most, patience)
            self._raise()
        if not in_time:
            raise self.timed_out("RNA: no round has taken this rank's gradients", self._timeout)
        self.metrics.waited_seconds += time.perf_counter() - started

    def collect(self) -> list[Published]:
        """All results that have come since the last time, in order; does not wait."""
        with self._changed:
            self._raise()
            results = list(self._results)
            self._results.clear()
            self._changed.notify_all()
            return results

    def close(self) -> None:
        """No more will be deposited."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # -- for the engine ------------------------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        return self._error

    def fail(self, error: BaseException) -> None:
        """Raised in training's next call."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def wait_for_news(self, seconds: float) -> None:
        """Until training has done something, or so long."""
        with self._changed:
            self._changed.wait(seconds)

    def forget(self, needed_from: int) -> None:
        """Nobody will ask for the results of earlier rounds."""
        for round in [round for round in self.log if round < needed_from]:
            del self.log[round]

    # -- for the worker ------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self._waiting)

    @property
    def closed(self) -> bool:
        return self._closed

    def take(self, round: int) -> Any:
        with self._changed:
            while self._waiting and self._is_too_old(round - self._waiting[0][0]):
                self._waiting.popleft()
                self.metrics.dropped += 1
            self._taken = len(self._waiting)
            return self._combine(list(self._waiting)) if self._waiting else None

    def publish(self, round: int, result: Sum | Shift, terms: str, contributed: bool) -> None:
        with self._changed:
            for _ in range(self._taken if contributed else 0):
                version, _grad = self._waiting.popleft()
                age = round - version
                self.metrics.staleness[age] = self.metrics.staleness.get(age, 0) + 1
            self._taken = 0
            if isinstance(result, Sum):
                self.metrics.contributors.append(result.contributors)
            elif result is self.shift:
                self.shift = None
            self._results.append(Published(result, terms))
            self.log[round] = result
            self._changed.notify_all()

    @abstractmethod
    def _combine(self, waiting: list[tuple[int, Values]]) -> Values:
        """What to contribute for these gradients and the versions they were computed with, oldest first."""

    def _is_too_old(self, rounds: int) -> bool:
        """Whether a gradient is to be dropped that was computed so many rounds ago."""
        return False


class SummingBox(GradientBox):
    """For sparse reduction: what waits is summed, and never dropped."""

    def _combine(self, waiting: list[tuple[int, Values]]) -> Values:
        total: Values = np.sum([grad for _, grad in waiting], axis=0)
        return total


class WeightingBox(GradientBox):
    """For dense reduction: later gradients weigh more, those beyond the staleness bound are dropped.

    A gradient's weight is its version minus the oldest one that waits, plus 1, over the sum of these: of versions 7 and
    10 the first weighs 1/5, the second 4/5. Those of one version weigh the same.
    """

    def __init__(self, staleness: int, timeout: float, metrics: Metrics | None = None) -> None:
        super().__init__(staleness, timeout, metrics)
        self._staleness = staleness

    def _combine(self, waiting: list[tuple[int, Values]]) -> Values:
        (oldest, total), *later = waiting
        if not later:
            return total
        total = total.copy()
        for version, grad in later:
            total += (version - oldest + 1) * grad
        total /= sum(version - oldest + 1 for version, _ in waiting)
        return total

    def _is_too_old(self, rounds: int) -> bool:
        return rounds > self._staleness
