"""Dense all-reduce: the sum in ring order, the same bits everywhere, in the fewest bytes."""

import numpy as np
import pytest

import spardl
from spardl import schedule
from spardl.collectives.dense_ring import dense_ring


def in_ring_order(grads):
    """The definition: block j is summed in the order j, j+1, …, j−1."""
    ranks, n = len(grads), len(grads[0])
    total = np.empty_like(grads[0])
    for block in range(ranks):
        part = slice(block * n // ranks, (block + 1) * n // ranks)
        total[part] = grads[block][part]
        for step in range(1, ranks):
            total[part] += grads[(block + step) % ranks][part]
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 5, 1000])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_sum(ranks, n, dtype):
    rng = np.random.default_rng(n + ranks)
    grads = [rng.standard_normal(n).astype(dtype) for _ in range(ranks)]
    handed_in = [grad.copy() for grad in grads]
    sums = [np.empty(n, dtype) for _ in range(ranks)]
    spardl.loopback([dense_ring(ranks, rank, grads[rank], sums[rank]) for rank in range(ranks)], seed=n)
    for rank in range(ranks):
        np.testing.assert_array_equal(sums[rank], in_ring_order(grads))
        np.testing.assert_array_equal(grads[rank], handed_in[rank])


@pytest.mark.parametrize("p", range(1, 18))
def test_every_block_is_handed_on_where_it_was_received(p):
    for w in range(p):
        scatter, gather = schedule.ring_reduce_scatter(p, w), schedule.ring_gather(p, w)
        assert len(scatter) == len(gather) == p - 1
        for before, after in zip([*scatter, *gather], [*scatter, *gather][1:], strict=False):
            assert after.sends == before.receives
        received = {r.receives for r in gather}
        assert received == {(j,) for j in range(p) if j != (w + 1) % p}
