"""Predictions beside measured times, where there are any."""

import pytest
from cost.profiles import ethernet

from spardl.allreduce import ALGORITHMS
from spardl.bench.prediction import add_predictions
from spardl.bench.runner import Options
from spardl.cost.model import predict


def rows(*algorithms, **more):
    return [{"algorithm": name, "teams": 1, "size": 10**6, "k": 10**4, "time_ms": 10.0, **more} for name in algorithms]


def test_time_and_error():
    (row,) = rows("spardl", teams=2)
    add_predictions([row], ethernet(4), 4, Options(wire="raw"))
    expected = predict(ethernet(4), "spardl", ranks=4, size=10**6, k=10**4, teams=2, wire="raw").seconds
    assert row["predicted_ms"] == pytest.approx(1e3 * expected)
    assert row["error_percent"] == pytest.approx(100 * (1e3 * expected / 10 - 1))


def test_every_algorithm_but_the_baseline_is_predicted():
    some = [{"algorithm": "MPI_Allreduce", "time_ms": 1.0, "size": 9, "k": 1}, *rows(*ALGORITHMS)]
    add_predictions(some, ethernet(4), 4, Options(wire_dtype="bf16"))
    assert ["predicted_ms" in row for row in some] == [False, *[True] * len(ALGORITHMS)]
