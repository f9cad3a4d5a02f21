"""``spardl bench`` under mpiexec: all algorithms, checked; what is wrong is found."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from cost.profiles import ethernet
from mpi.launcher import launch, run_job

from spardl.allreduce import ALGORITHMS
from spardl.cli import main

CORRUPT = Path(__file__).parents[1] / "bench" / "programs" / "corrupt.py"
COMMAND = [sys.executable, "-m", "mpi4py", "-m", "spardl", "bench"]
QUICK = ["--size", "3000", "--warmup", "1", "--repeats", "3"]


@pytest.fixture
def profile(tmp_path):
    """So that none is measured."""
    ethernet(3).save(tmp_path / "profile.json")
    return ["--profile", str(tmp_path / "profile.json")]


@pytest.mark.launches
def test_all_algorithms_on_three_ranks(tmp_path):
    path = tmp_path / "results.json"
    flags = ["--size", "5000", "--density", "0.02", "--label", "a test", "--output", str(path)]
    done = run_job(3, [*COMMAND, *QUICK, *flags])
    assert done.returncode == 0, done.stdout
    assert "a test, 3 ranks on 1 host: n = 5,000, k = 100" in done.stdout
    told = json.loads(path.read_text())
    assert told["command"].startswith("mpiexec -n 3 spardl bench --size 3000")
    assert (told["ranks"], told["hosts"], told["label"]) == (3, 1, "a test")
    assert told["profile"]["exchange"]["beta"] > 0
    assert told["parameters"]["seed"] == 0
    assert [(row["size"], row["k"]) for row in told["rows"]] == [(3000, 60)] * 11 + [(5000, 100)] * 11
    baseline, *rows = told["rows"][:11]
    assert (baseline["algorithm"], baseline["ratio"]) == ("MPI_Allreduce", 1)
    assert {row["algorithm"] for row in rows} == set(ALGORITHMS)
    assert [row["teams"] for row in rows if row["algorithm"] == "spardl"] == [1, 3]
    for row in rows:
        assert (row["wrong"], row["same_bits"]) == (0, True)
        assert row["law"] < 1e-6
        assert row["min_ms"] <= row["median_ms"] <= row["max_ms"] <= 1e3 * max(row["seconds"])
        assert (len(row["seconds"]), len(row["seconds_by_rank"]), len(row["seconds_by_rank"][0])) == (3, 3, 3)
        assert min(row["rounds"], row["messages"], row["bytes_sent"], row["time_ms"], row["ratio"]) > 0
        assert row["predicted_ms"] > 0
    sparse = next(row for row in rows if row["algorithm"] == "spardl")
    assert sparse["bytes_per_dense"] < 0.1


@pytest.mark.launches
def test_slow_ones_stop_early_and_memory_is_told(tmp_path, profile):
    path = tmp_path / "results.json"
    flags = ["--repeats", "50", "--max-seconds", "0", "--memory", "--no-baseline", "--wire-dtype", "bf16"]
    names = ["--algorithm", "spardl:2", "--algorithm", "dense_ring"]
    done = run_job(2, [*COMMAND, *QUICK, *profile, *flags, *names, "--output", str(path)])
    assert done.returncode == 0, done.stdout
    rows = json.loads(path.read_text())["rows"]
    assert [(row["algorithm"], row["teams"], row["runs"]) for row in rows] == [("spardl", 2, 2), ("dense_ring", 1, 2)]
    assert all(row["arrays_per_dense"] > 0 and "ratio" not in row for row in rows)
    assert "Peak of the first 3 reduces" in done.stdout


@pytest.mark.launches
@pytest.mark.parametrize("way", ["lost", "nan", "bit"])
def test_wrong_results_are_found(way, tmp_path, profile):
    path = tmp_path / "results.json"
    flags = [*QUICK, *profile, "--algorithm", "spardl", "--output", path]
    done = launch(3, CORRUPT, way, *flags, python_flags=("-m", "mpi4py"))
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("Error: some results are wrong") == 1
    told = json.loads(path.read_text())
    assert told["profile"]["exchange"]["alpha"] == 50e-6
    _, row = told["rows"]
    assert row["wrong"] > 0
    assert row["same_bits"] == (way != "bit")
    if way == "lost":
        assert row["law"] > 1e-3


@pytest.mark.launches
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--algorithm", "spardl:3"], "one of [1, 2], got 'spardl:3'"),
        (["--profile", "nowhere.json"], "No such file or directory: 'nowhere.json'"),
        (["--output", "no/where.json"], "No such file or directory: 'no/where.json'"),
    ],
)
def test_what_only_ranks_can_know_is_said_once(flags, words):
    done = run_job(2, [*COMMAND, *QUICK, *flags])
    assert done.returncode != 0
    assert done.stdout.count(words) == 1, done.stdout
    assert "Traceback" not in done.stdout


def test_wrong_arguments():
    runner = CliRunner()
    for arguments, words in (
        (["--size", "huge"], "expected a number of elements or one of vgg16, resnet20, got 'huge'"),
        (["--density", "0"], "0.0 is not in the range 0<x<=1"),
        (["--repeats", "0"], "0 is not in the range x>=1"),
        (["--wire-dtype", "int8"], "'int8' is not one of 'same', 'bf16', 'fp16'"),
    ):
        result = runner.invoke(main, ["bench", *arguments])
        assert result.exit_code == 2
        assert words in result.output
