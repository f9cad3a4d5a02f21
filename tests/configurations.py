"""Configurations of a sparse all-reduce, drawn by Hypothesis, and the ranks that run them in loopback."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from spardl import kernels, loopback, schedule
from spardl.collectives.spardl import SparDL
from spardl.wire import Codec


@dataclass(frozen=True)
class Setup:
    ranks: int
    teams: int
    sag: str
    n: int
    k: int
    dtype: str
    wire: str
    seed: int
    order: int | None

    def reducers(self, backends, residual="global", wire_dtype="same"):
        """One per rank; ``backends`` are dealt out in turn."""
        chosen = [kernels.load(backends[rank % len(backends)]) for rank in range(self.ranks)]
        return [
            SparDL(
                self.n,
                self.k,
                rank=rank,
                layout=schedule.Teams(self.ranks, self.teams),
                dtype=self.dtype,
                kernels=chosen[rank],
                codec=Codec(chosen[rank], self.wire, wire_dtype),
                sag=self.sag,
                residual=residual,
            )
            for rank in range(self.ranks)
        ]

    def integer_gradients(self, rng, reduces):
        """Small integers, scaled so that every share of every one of ``reduces`` reduces divides exactly."""
        values = rng.integers(-4, 5, (self.ranks, self.n)) * self.teams**reduces
        return list(values.astype(self.dtype))

    def float_gradients(self, rng):
        return list(rng.standard_normal((self.ranks, self.n)).astype(self.dtype))

    def reduce(self, reducers, grads):
        generators = [r.reduce(g) for r, g in zip(reducers, grads, strict=True)]
        return loopback(generators, seed=self.order, messages=[r._kernels.arrays.messages for r in reducers])


@st.composite
def setups(draw, max_n=3000, max_ranks=17):
    ranks = draw(st.integers(1, max_ranks))
    teams = draw(st.sampled_from(schedule.team_counts(ranks)))
    sag = draw(st.sampled_from(["r", "b"] if schedule.is_power_of_two(teams) else ["b"]))
    about_ranks = st.sampled_from([0, 1, ranks - 1, ranks, ranks + 1])
    n = draw(about_ranks | st.integers(0, min(200, max_n)) | st.integers(max_n // 3, max_n))
    k = draw(st.sampled_from([0, 1, ranks - 1, n, n + 3]) | st.integers(0, max(1, n // 5)))
    return Setup(
        ranks,
        teams,
        sag,
        n,
        k,
        draw(st.sampled_from(["float32", "float64"])),
        draw(st.sampled_from(["raw", "packed", "auto"])),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.none() | st.integers(0, 2**32 - 1)),
    )


def total(arrays, n):
    """Sum in float64, where small integers stay exact."""
    return sum((np.asarray(a, np.float64) for a in arrays), np.zeros(n))


def bits(vector):
    return (vector.indices.tobytes(), vector.values.tobytes(), vector.indices.dtype, vector.values.dtype)
