"""How many workers form a group: a given number, or one that fits how evenly they work."""

from collections.abc import Collection

from spardl.protocols.preduce.settings import AUTO
from spardl.protocols.preduce.step_times import StepTimes

_FIRST, _EVERY = 16, 256  # groups after which it is chosen, and chosen anew


class GroupSize:
    """P, of at most N."""

    def __init__(self, asked: int | str, ranks: int, times: StepTimes) -> None:
        self._chosen_here, self._times = asked == AUTO, times
        self.now = max(2, -(-ranks // 2)) if isinstance(asked, str) else asked
        self._next_look = _FIRST

    def look_again(self, groups: int, living: Collection[int]) -> bool:
        """After so many groups. True if it has changed."""
        if not self._chosen_here or groups < self._next_look:
            return False
        self._next_look = groups + _EVERY
        before, self.now = self.now, self._times.best_group(living)
        return self.now != before
