"""Predictions and plans on imaginary clusters, where one can say what must come out."""

import math

import pytest
from cost.profiles import ethernet, profile, shared_memory, slow_latency

from spardl.cost.model import predict
from spardl.cost.plan import rank_all
from spardl.schedule import team_counts

VGG16, RESNET20 = 14_728_266, 269_722


def ranking(chosen, ranks, size, density=0.01, **options):
    return rank_all(chosen, ranks=ranks, size=size, k=round(density * size), **options)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 16])
def test_messages_cost_alpha_per_round_and_beta_per_byte(ranks):
    chosen = profile(ranks, 1.0, 0.0)
    for prediction in ranking(chosen, ranks, RESNET20):
        if prediction.algorithm != "dense_mpi":
            assert prediction.message_seconds == pytest.approx(prediction.rounds)
    chosen = profile(ranks, 0.0, 1.0)
    for d in team_counts(ranks):
        prediction = predict(chosen, "spardl", ranks=ranks, size=RESNET20, k=2697, teams=d)
        assert prediction.message_seconds == pytest.approx(prediction.bytes_sent, rel=0.02)


def test_on_a_slow_network_sparse_wins_and_everything_is_there():
    best = ranking(ethernet(6), 6, VGG16)
    assert best[0].algorithm == "spardl"
    assert {p.name for p in best} >= {"spardl", "spardl:2", "spardl:3", "spardl:6", "oktopk", "topk_a", "dense_mpi"}
    assert [p.seconds for p in best] == sorted(p.seconds for p in best)
    dense = next(p for p in best if p.algorithm == "dense_ring")
    assert dense.seconds > 20 * best[0].seconds
    assert dense.seconds == pytest.approx(2 * 5 / 6 * 4 * VGG16 / 110e6, rel=0.1)  # the wire's own time


def test_many_teams_where_latency_rules_few_where_bandwidth_does():
    assert ranking(slow_latency(8), 8, RESNET20)[0].rounds == 3
    bandwidth = profile(16, 0.0, 1 / 1e6)
    assert min(ranking(bandwidth, 16, VGG16, algorithms=["spardl"], sag="r"), key=lambda p: p.seconds).teams <= 2


def test_dense_where_sparse_would_lose():
    assert ranking(shared_memory(4), 4, VGG16, density=0.5)[0].algorithm.startswith("dense")
    assert ranking(ethernet(4), 4, 100)[0].rounds <= 2


def test_the_library_is_taken_at_its_measured_word():
    fast, slow = (
        {p.name: p.seconds for p in ranking(ethernet(4, library=factor), 4, VGG16)}["dense_mpi"] for factor in (1, 5)
    )
    assert slow == pytest.approx(5 * fast, rel=0.05)


@pytest.mark.parametrize("ranks", [1, 2, 5, 12])
@pytest.mark.parametrize(("size", "k"), [(0, 0), (1, 1), (5, 100), (1000, 0), (1000, 10)])
def test_edges(ranks, size, k):
    for prediction in rank_all(ethernet(ranks) if ranks > 1 else profile(1, 0, 0), ranks=ranks, size=size, k=k):
        assert math.isfinite(prediction.seconds)
        assert prediction.seconds >= 0
        assert (prediction.bytes_sent == 0) == (ranks == 1)


def test_sixteen_bit_values_are_shorter():
    same, half = (
        predict(ethernet(4), "spardl", ranks=4, size=VGG16, k=147_283, wire_dtype=dtype).bytes_sent
        for dtype in ("same", "bf16")
    )
    assert half == pytest.approx(same * 3 / 5, rel=0.02)  # about a byte of index beside four or two
