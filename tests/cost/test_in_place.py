"""What rounds, calls and kernels take in a reduce is found from how long reduces take."""

from dataclasses import replace

import pytest
from cost.profiles import GAMMA, ethernet, profile

from spardl.cost import in_place
from spardl.cost.model import predict


def slower(of, round=0.0, call=0.0, factor=1.0):
    """What a loop does not show."""
    gamma = {name: cost * (1 if name in in_place.PER_CALL else factor) for name, cost in of.gamma.items()}
    return replace(of, gamma=gamma | {"round": gamma["round"] + round, "call": gamma["call"] + call})


def put_right(monkeypatch, measured, truth):
    """Where every reduce takes what is predicted with the true profile."""

    def seconds(stopwatch, size, teams):
        return predict(truth, "spardl", ranks=truth.ranks, size=size, k=max(8, size // 100), teams=teams).seconds

    monkeypatch.setattr(in_place, "_measured", seconds)
    return in_place.put_right(measured, None)


@pytest.mark.parametrize("ranks", [2, 4, 5, 6, 8])
def test_what_a_loop_does_not_show_is_found(monkeypatch, ranks):
    measured = ethernet(ranks)
    truth = slower(measured, round=150e-6, call=700e-6, factor=1.7)
    assert put_right(monkeypatch, measured, truth).gamma == pytest.approx(truth.gamma, rel=0.02)


@pytest.mark.parametrize("truth", [slower(ethernet(4)), slower(ethernet(4), call=-50e-6, factor=0.5)])
def test_nothing_gets_faster(monkeypatch, truth):
    assert put_right(monkeypatch, ethernet(4), truth).gamma == pytest.approx(GAMMA, rel=0.01)


def test_one_rank_waits_for_nobody(monkeypatch):
    alone = profile(1, 0.0, 0.0)
    assert in_place.put_right(alone, None) is alone
