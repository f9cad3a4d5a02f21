"""The benchmark of virtual time, small: Table 1 falls out, figures are written, and results of the suite are read."""

import json
import sys
from pathlib import Path

import pytest
from cost.profiles import ethernet

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: tests have folders of the same names
import virtual as benchmark


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def command(*arguments):
        record = tmp_path / "virtual.json"
        monkeypatch.setattr(sys, "argv", ["benchmarks/virtual.py", *map(str, arguments), "--json", str(record)])
        code = benchmark.main()
        return code, json.loads(record.read_text())["rows"], capsys.readouterr().out

    return command


def test_table_1_falls_out(run):
    code, rows, _ = run("table", "--ranks", 128, "--pairs", 64)
    assert code == 0
    assert [row["name"] for row in rows if row["equal"] != "yes"] == ["Ok-Topk"]
    assert all(row["rounds"] <= row["alpha"] <= row["rounds"] + 7 for row in rows)
    assert len({row["name"] for row in rows}) == 8
    assert {row["ranks"] for row in rows} == {64, 128}


def test_all_but_the_suite(run, tmp_path):
    profile, plot = tmp_path / "profile.json", tmp_path / "ranks.png"
    ethernet(4).save(profile)
    code, rows, _ = run("--ranks", 64, "--pairs", 8, "--rounds", 3, "--profile", profile, "--plot", plot)
    assert code == 0
    assert {row["what"] for row in rows} == {"reduce", "table", "rna", "ranks"}
    (rna,) = (row for row in rows if row["what"] == "rna")
    assert rna["rounds"] >= 3
    drawn = [row for row in rows if row["what"] == "ranks"]
    assert {row["ranks"] for row in drawn} == {4, 8, 16, 32, 64}
    assert {row["ranks"] for row in drawn if row["algorithm"] == "oktopk"} == {4, 8}
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_beside_what_the_suite_has_measured(run, tmp_path):
    folder = tmp_path / "results" / "4-hosts"
    folder.mkdir(parents=True)
    ethernet(4).save(folder / "profile.json")
    common = {"size": 10_000, "k": 100, "density": 0.01, "time_ms": 1.0}
    measured = [
        {"algorithm": "MPI_Allreduce", **common},
        {"algorithm": "spardl", "teams": 2, "error_percent": -5.0, **common},
        {"algorithm": "dense_ring", "teams": 1, "error_percent": 7.0, **common},
    ]
    (folder / "some.json").write_text(json.dumps({"label": "1 Gbit/s", "ranks": 4, "rows": measured}))
    _, rows, told = run("suite", "--results", folder.parent)
    assert [(row["algorithm"], row["teams"]) for row in rows] == [("spardl", 2), ("dense_ring", 1)]
    for row in rows:
        assert row["error_percent"] == pytest.approx(100 * (row["virtual_ms"] / row["measured_ms"] - 1))
    assert "median error of 2 times" in told


def test_what_is_not_there(run, tmp_path):
    with pytest.raises(SystemExit, match=r"no results of benchmarks/suite\.py"):
        run("suite", "--results", tmp_path)
    with pytest.raises(SystemExit):
        run("everything")
