"""The suite's verdicts, on results that one can work out by hand."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: tests have folders of the same names

import suite


def row(algorithm, time_ms, teams=1, predicted_ms=None, **more):
    predicted = {} if predicted_ms is None else {"predicted_ms": predicted_ms}
    error = {} if predicted_ms is None else {"error_percent": 100 * (predicted_ms / time_ms - 1)}
    sizes = {"size": 1000, "density": 0.01, "k": 10}
    return {
        "algorithm": algorithm,
        "teams": teams,
        "time_ms": time_ms,
        "wrong": 0,
        **sizes,
        **predicted,
        **error,
        **more,
    }


def results():
    rows = [
        {"algorithm": "MPI_Allreduce", "time_ms": 90.0, "size": 1000, "density": 0.01, "k": 10},
        row("spardl", 3.0, 1, 2.4),
        row("spardl", 2.0, 2, 2.2),
        row("spardl", 2.1, 4, 1.1),
        row("dense_mpi", 100.0, predicted_ms=100.0),
        row("gtopk", 5.0, predicted_ms=4.0),
        row("topk_a", 4.0, predicted_ms=8.0),
    ]
    return {"label": "1gbit/s", "ranks": 4, "rows": rows}


def test_verdict():
    told = suite.verdict(results())
    assert (told["teams"], told["speedup"]) == (2, 50.0)
    assert (told["rival"], told["rival_ratio"]) == ("topk_a", 2.0)
    assert told["planned"] == 4
    assert told["planned_over_best"] == pytest.approx(5)
    assert told["one_team_over_two"] == 1.5
    assert told["median_error"] == pytest.approx(20)
    assert told["wrong"] == 0


def test_summary_tells_and_keeps_everything(tmp_path, capsys):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(results()))
    assert suite.summarize([path], tmp_path) == 0
    told = capsys.readouterr().out
    assert "median error 20 % of 6 times" in told
    assert "in 1 of 1 settings" in told
    assert json.loads((tmp_path / "summary.json").read_text())["planned_within_10_percent"] == 1
    assert "1gbit/s, 4 ranks, n = 1,000, k = 10" in (tmp_path / "tables.txt").read_text()


def test_wrong_results_make_it_fail(tmp_path):
    told = results()
    told["rows"][1]["wrong"] = 3
    path = tmp_path / "one.json"
    path.write_text(json.dumps(told))
    assert suite.summarize([path], tmp_path) == 1


def test_all_team_counts():
    stage = suite.Stage(6, "1gbit", (), algorithms=("spardl*", "gtopk"))
    assert stage.contenders() == ["spardl:1", "spardl:2", "spardl:3", "spardl:6", "gtopk"]
