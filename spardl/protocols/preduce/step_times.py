"""How long every worker's steps take, as the controller sees it: from its release to its next signal."""

from collections import deque
from collections.abc import Collection
from statistics import median

import numpy as np

_KEPT = 16  # steps of a worker


class StepTimes:
    """Of N workers, by the controller's clock."""

    def __init__(self, ranks: int) -> None:
        self._released: dict[int, float] = {}  # that compute
        self._steps: list[deque[float]] = [deque(maxlen=_KEPT) for _ in range(ranks)]
        self._summaries: dict[int, tuple[float, float]] = {}  # median and MAD, if steps have not changed since

    def release(self, rank: int, now: float) -> None:
        self._released[rank] = now

    def signal(self, rank: int, now: float) -> None:
        released = self._released.pop(rank, None)
        if released is not None:  # not before the first step, which has more to do
            self._steps[rank].append(now - released)
            self._summaries.pop(rank, None)

    def forget(self, rank: int) -> None:
        """It computes no more."""
        self._released.pop(rank, None)

    def due(self, rank: int) -> float | None:
        """When a worker that computes should be ready at the latest, going by what its steps have taken so far."""
        if rank not in self._released or not self._steps[rank]:
            return None
        middle, deviation = self._summary(rank)
        return self._released[rank] + middle + 3 * deviation

    def median(self, ranks: Collection[int]) -> float:
        """Of a step of these workers; 0 if none is known."""
        known = [self._summary(rank)[0] for rank in ranks if self._steps[rank]]
        return median(known) if known else 0.0

    def _summary(self, rank: int) -> tuple[float, float]:
        if rank not in self._summaries:
            middle = median(self._steps[rank])
            self._summaries[rank] = (middle, median(abs(step - middle) for step in self._steps[rank]))
        return self._summaries[rank]

    def best_group(self, ranks: Collection[int], most_wait: float = 0.2) -> int:
        """The largest group whose first member waits for the last no longer than that share of a median step.

        As expected if all begin a step together, each taking what it has taken before.
        """
        known = [list(self._steps[rank])[::-1] for rank in sorted(ranks) if self._steps[rank]]
        if len(known) < 2:
            return 2
        rows = min(map(len, known))
        arrivals = np.sort(np.array([steps[:rows] for steps in known]), axis=0)
        waits = (arrivals - arrivals[0]).mean(axis=1)  # of the first for the second, the third, …
        enough = waits <= most_wait * float(np.median(arrivals))
        return max(2, int(np.flatnonzero(enough)[-1]) + 1)
