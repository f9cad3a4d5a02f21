"""The weight generator: how much each member's model counts in a group's average.

Constant weights are equal. Dynamic ones fall with how far a model is behind: r = 1 for the freshest, and one more for
every iteration that it has seen less. By default a member weighs α^(r−1), over the sum of these. The paper gives every
number r such a weight, whether somebody has it or not; ``fill`` says who gets those that nobody has.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NEWEST, NEAREST, STALEST = FILLS = ("newest", "nearest", "stalest")


@dataclass(frozen=True, slots=True)
class Constant:
    """Every member counts alike, which keeps the mean of all models."""

    def shares(self, iterations: Sequence[int]) -> list[float]:
        return [1 / len(iterations)] * len(iterations)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The further behind, the less."""

    alpha: float = 0.5
    fill: str | None = None

    def shares(self, iterations: Sequence[int]) -> list[float]:
        """By member, for the iterations they have seen; they sum to 1."""
        numbers = [max(iterations) - iteration + 1 for iteration in iterations]
        if self.fill is None:
            own = [self.alpha ** (number - 1) for number in numbers]
        else:
            held, sharing = self._held(sorted(set(numbers))), Counter(numbers)
            own = [held[number] / sharing[number] for number in numbers]
        total = sum(own)
        return [share / total for share in own]

    def _held(self, taken: list[int]) -> dict[int, float]:
        """By number that somebody has: its own weight, and those of numbers in between that it gets."""
        held = {number: self.alpha ** (number - 1) for number in taken}
        for newer, older in pairwise(taken):
            if self.fill == NEAREST:
                half = (newer + older) // 2  # as far from both, or the last that is nearer to the newer one
                held[newer] += self._sum(newer + 1, half)
                held[older] += self._sum(half + 1, older - 1)
            else:
                held[taken[0 if self.fill == NEWEST else -1]] += self._sum(newer + 1, older - 1)
        return held

    def _sum(self, first: int, last: int) -> float:
        """Of α^(r−1) over these r, without a loop: there may be a hundred thousand."""
        count = max(0, last - first + 1)
        if self.alpha == 1:
            return float(count)
        return self.alpha ** (first - 1) * (1 - self.alpha**count) / (1 - self.alpha)
