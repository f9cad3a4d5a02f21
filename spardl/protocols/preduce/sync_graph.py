"""How fast what one worker has learned spreads to all, from the groups that there were.

A group's averaging is a matrix W: 1/P between its members, and 1 for everyone else with itself. Of the mean of all
these, ρ is the largest absolute eigenvalue but the first: 0 if every group has everyone, 1 if some never meet. It looks
at who was together, whatever the members' weights were.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl import saved


class SyncGraph:
    """The groups of N ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.groups = ranks, 0
        self._moved: npt.NDArray[np.float64] = np.zeros((ranks, ranks))  # the sum of all W − I

    def add(self, members: Sequence[int]) -> None:
        self.groups += 1
        self._moved[np.ix_(members, members)] += 1 / len(members)
        self._moved[members, members] -= 1

    def add_all(self, groups: Iterable[Sequence[int]]) -> "SyncGraph":
        for members in groups:
            self.add(members)
        return self

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean of all W."""
        mean: npt.NDArray[np.float64] = np.eye(self.ranks) + self._moved / max(1, self.groups)
        return mean

    @property
    def rho(self) -> float:
        if self.ranks == 1:
            return 0.0
        eigenvalues = np.linalg.eigvalsh(self.mean)
        return float(min(1.0, max(abs(eigenvalues[-2]), abs(eigenvalues[0]))))

    @property
    def rho_bar(self) -> float:
        """What the network error of the paper's Theorem 1 grows with; infinite if some never meet."""
        rho = self.rho
        if rho >= 1 - 1e-12:
            return float("inf")
        return float(rho / (1 - rho) + 2 * rho**0.5 / (1 - rho**0.5) ** 2)

    def told(self) -> dict[str, Any]:
        """For a table or JSON."""
        bar = self.rho_bar
        return {"groups": self.groups, "rho": self.rho, "rho_bar": None if bar == float("inf") else bar}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"groups": self.groups, "moved": self._moved.tolist()}

    @classmethod
    def from_state(cls, state: Any, ranks: int) -> "SyncGraph":
        """Raises ValueError if ``state`` of so many ranks cannot have returned that."""
        graph = cls(ranks)
        graph.groups = saved.integer(saved.part(state, "groups"), "groups", 0)
        rows = saved.sequence(saved.part(state, "moved"), "moved", ranks)
        numbers = [saved.sequence(row, "a row of moved", ranks) for row in rows]
        if not all(isinstance(number, float) for row in numbers for number in row):
            raise saved.unfit("moved", "to have numbers only", rows)
        graph._moved = saved.array(np.array(numbers), "moved", (ranks, ranks), np.float64)
        return graph
