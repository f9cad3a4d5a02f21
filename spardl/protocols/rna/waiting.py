"""Gradients that no round has taken yet."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[Any]


class Waiting(ABC):
    """One rank's, oldest first. What an attempt at a round has taken goes on waiting until the round is through."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Values]] = deque()  # version of the weights it was computed with, gradient
        self._taken = 0  # how many of those the last attempt holds
        self._dropped = 0  # that were too old, and not told of yet

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, version: int, gradient: Values) -> None:
        """Keeps the array."""
        self._waiting.append((version, gradient))

    def take(self, round: int) -> Values | None:
        """What waits, combined, to contribute to a round; None if all of it was too old."""
        while self._waiting and self._is_too_old(round - self._waiting[0][0]):
            self._waiting.popleft()
            self._dropped += 1
        self._taken = len(self._waiting)
        return self._combine(list(self._waiting)) if self._waiting else None

    def let_go(self, round: int) -> tuple[int, ...]:
        """What was taken is in the round. Returns how many rounds old each gradient is."""
        taken, self._taken = self._taken, 0
        return tuple(round - self._waiting.popleft()[0] for _ in range(taken))

    def tell_dropped(self) -> int:
        """How many gradients were too old, since the last time."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    @abstractmethod
    def _combine(self, waiting: list[tuple[int, Values]]) -> Values:
        """What to contribute for these gradients and the versions they were computed with, oldest first."""

    def _is_too_old(self, rounds: int) -> bool:
        """Whether a gradient is to be dropped that was computed so many rounds ago."""
        return False


class Summed(Waiting):
    """For sparse reduction: what waits is summed, and never dropped."""

    def _combine(self, waiting: list[tuple[int, Values]]) -> Values:
        total: Values = np.sum([grad for _, grad in waiting], axis=0)
        return total


class Weighted(Waiting):
    """For dense reduction: later gradients weigh more, those beyond the staleness bound are dropped.

    A gradient's weight is its version minus the oldest one that waits, plus 1, over the sum of these: of versions 7 and
    10 the first weighs 1/5, the second 4/5. Those of one version weigh the same.
    """

    def __init__(self, staleness: int) -> None:
        super().__init__()
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
