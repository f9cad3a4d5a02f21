"""Dealing states out to another number of ranks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spardl.torch.checkpoint import join_states, reshard, sealed, state_for


def states(ranks):
    template = {"kind": "sparse", "names": ["w"], "shapes": [[5]], "strides": [[1]], "dtype": "float32"}
    generator = torch.Generator().manual_seed(ranks)

    def integers():
        return torch.randint(-99, 99, (5,), generator=generator).float()

    decay = integers()

    def bucket(rank):
        vectors = {"residual": integers(), "velocity": integers(), "decay_velocity": decay}
        return sealed(template | vectors | {"reducer": {"rank": rank}})

    return [{"format": 1, "ranks": ranks, "rank": rank, "steps": 7, "buckets": [bucket(rank)]} for rank in range(ranks)]


@given(st.integers(1, 9), st.integers(1, 9))
def test_sums_over_ranks_are_kept(before, after):
    old = states(before)
    new = [reshard(old, after, rank) for rank in range(after)]
    for part in ("residual", "velocity"):
        sums = [sum(state["buckets"][0][part] for state in group) for group in (old, new)]
        assert torch.equal(*sums)
    for state in new:
        assert torch.equal(state["buckets"][0]["decay_velocity"], old[0]["buckets"][0]["decay_velocity"])
        assert "reducer" not in state["buckets"][0]  # learnt for the old ranks
        assert (state["steps"], state["ranks"]) == (7, before)


@pytest.mark.parametrize("owing", [0, 1, 2])
def test_a_residual_that_one_rank_alone_has(owing):
    old = states(3)
    for state in old[:owing] + old[owing + 1 :]:
        del state["buckets"][0]["residual"]
    for ranks in (1, 2, 4):
        new = [reshard(old, ranks, rank)["buckets"][0]["residual"] for rank in range(ranks)]
        assert torch.equal(sum(new), old[owing]["buckets"][0]["residual"])


def test_as_many_ranks_get_their_own_back():
    old = states(3)
    joined = join_states(old[::-1])
    assert [state_for(joined, 3, rank) for rank in range(3)] == old
    with pytest.raises(ValueError, match=r"all of 3 ranks, once each, got those of \[0, 2\]"):
        join_states([old[2], old[0]])
