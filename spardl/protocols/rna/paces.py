"""How long iterations take on each rank, and whether other groups would fit that better."""

from collections import deque
from collections.abc import Sequence
from statistics import median

from spardl.protocols.rna.grouping import group_by_speed

Groups = Sequence[Sequence[int]]
REPORTS_EVERY = 8  # iterations


class Pace:
    """One rank's: the median of its last iterations, so that a single hiccup does not count."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=REPORTS_EVERY)
        self.iterations = 0

    def note(self, seconds: float) -> None:
        self._recent.append(seconds)
        self.iterations += 1

    @property
    def seconds(self) -> float:
        return median(self._recent) if self._recent else 0.0


class Paces:
    """All ranks', as they report them. Two looks in a row have to agree before groups are said to fit no more."""

    def __init__(self, groups: Groups) -> None:
        self._groups = _as_sets(groups)
        self._ranks = sum(map(len, groups))
        self._reported: dict[int, float] = {}
        self._last_look = self._groups

    def report(self, rank: int, seconds: float) -> bool:
        """True if the ranks should be grouped anew. Looks when every rank has reported since the last look."""
        self._reported[rank] = seconds
        if len(self._reported) < self._ranks:
            return False
        fitting = _as_sets(group_by_speed([self._reported[rank] for rank in range(self._ranks)]))
        self._reported.clear()
        again, self._last_look = fitting == self._last_look, fitting
        return again and fitting != self._groups


def _as_sets(groups: Groups) -> set[frozenset[int]]:
    return {frozenset(group) for group in groups}
