"""A communication graph and what follows from it: neighbours, diameter, spectral gap, bounds on iteration gaps."""

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from spardl.graphs.gaps import Bounds, bounds, varying_bounds


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Who sends models to whom, and how much each counts. Made by ``spardl.graph``, which checks it; immutable.

    ``weights[i, j]`` is how much rank j's model counts at rank i: positive for i itself and for those that send to it,
    else 0; rows sum to 1. Of a graph that varies with the iteration it is the mean over one period.
    """

    name: str
    weights: npt.NDArray[np.float64]
    parts: tuple["Graph", ...] = ()  # the graphs of one period; none if it does not vary

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} of {self.ranks} ranks>"

    @property
    def ranks(self) -> int:
        return len(self.weights)

    @property
    def period(self) -> int:
        """Iterations after which the graph repeats; 1 if it does not vary."""
        return len(self.parts) or 1

    def at(self, iteration: int) -> "Graph":
        """The fixed graph of this iteration. Alone it need not connect all ranks."""
        return self.parts[iteration % self.period] if self.parts else self

    @cached_property
    def inward(self) -> tuple[tuple[int, ...], ...]:
        """By rank: from whom it receives, without itself; in any iteration of a period."""
        return _others(self.weights > 0)

    @cached_property
    def outward(self) -> tuple[tuple[int, ...], ...]:
        """By rank: to whom it sends, without itself; in any iteration of a period."""
        return _others(self.weights.T > 0)

    @cached_property
    def is_undirected(self) -> bool:
        """Whether in every iteration each rank receives from those that it sends to."""
        return all(np.array_equal(part.weights > 0, part.weights.T > 0) for part in self._period)

    @cached_property
    def is_doubly_stochastic(self) -> bool:
        """Whether columns sum to 1 as well, so that averaging keeps the mean of all models."""
        return all(np.allclose(part.weights.sum(axis=0), 1, rtol=0, atol=1e-9) for part in self._period)

    @cached_property
    def diameter(self) -> int:
        """Edges of the longest of all shortest paths; ``UNREACHED`` if there is a pair without one."""
        return int(bounds(self.weights > 0, max_gap=None, step=1).max())

    @cached_property
    def spectral_gap(self) -> float:
        """1 − |λ₂| of the weights: the larger, the faster models agree.

        Of a graph that varies: 1 − the second singular value of the product of the weights over one period.
        """
        if self.ranks == 1:
            return 1.0
        if self.parts:
            # The first iteration's weights are applied first, so they stand on the right.
            product = reduce(lambda so_far, part: part.weights @ so_far, self.parts, np.eye(self.ranks))
            sizes = np.linalg.svd(product, compute_uv=False)
        else:
            sizes = np.sort(np.abs(np.linalg.eigvals(self.weights)))[::-1]
        return max(0.0, 1 - float(sizes[1]))

    def gap_bound(self, max_gap: int | None, step: int | None = 1) -> Bounds:
        """By ranks i, j: how many iterations i can be ahead of j. ``UNREACHED`` where nothing bounds it.

        ``max_gap``: tokens that a queue starts with; None: no tokens. ``step``: how far a rank can be ahead of one that
        sends to it: 1 in standard mode, s + 1 with staleness s; None: with backup workers, where only tokens count.

        It is the length of the shortest path from j to i, where an edge is ``step`` long, and ``max_gap`` against its
        direction. Of a graph that varies, an edge bounds nothing between the iterations that use it.
        """
        for what, value in (("max_gap", max_gap), ("step", step)):
            if value is not None and value < 1:
                raise ValueError(f"gap_bound: expected {what} of at least 1, or None, got {value}")
        if self.parts:
            return varying_bounds([part.weights > 0 for part in self.parts], max_gap, step)
        return bounds(self.weights > 0, max_gap, step)

    @property
    def _period(self) -> tuple["Graph", ...]:
        return self.parts or (self,)


def _others(chosen: npt.NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(j) for j in np.flatnonzero(row) if j != i) for i, row in enumerate(chosen))
