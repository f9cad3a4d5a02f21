"""The mean of several groups' weights, whenever one of them asks."""

from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]


class Averager:
    """Knows the weights that each group has last handed in. A group counts as much as it has ranks."""

    def __init__(self, ranks_of_groups: list[int]) -> None:
        self._ranks = ranks_of_groups
        self._latest: dict[int, Values] = {}

    def push(self, group: int, weights: Values) -> Values:
        """Takes a group's weights, which it keeps, and returns the mean over groups that have handed theirs in."""
        self._latest[group] = weights
        ranks = sum(self._ranks[number] for number in self._latest)
        mean = np.zeros_like(weights)
        # Always in the same order, so that the mean does not depend on who came first.
        for number in sorted(self._latest):
            mean += (self._ranks[number] / ranks) * self._latest[number]
        return mean
