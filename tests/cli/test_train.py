"""``spardl train``: the digits job under mpiexec, and its words for what is wrong."""

import json
import sys

import pytest
from click.testing import CliRunner
from mpi.launcher import run_job

from spardl.cli import main


def train(ranks, json_path, *arguments):
    command = [sys.executable, "-m", "spardl", "train", *map(str, arguments), "--json", str(json_path)]
    done = run_job(ranks, command, limit=240)
    assert done.returncode == 0, done.stdout[-8000:]
    return json.loads(json_path.read_text())["runs"], done.stdout


@pytest.mark.launches
@pytest.mark.parametrize(("ranks", "teams"), [(4, [1, 2]), (3, [3]), (6, [2, 3])])
def test_digits_within_a_point_of_dense_with_a_twentieth_of_the_bytes(ranks, teams, tmp_path):
    several = [flag for number in teams for flag in ("--teams", number)]
    both = ("--sync", "dense", "--sync", "spardl", "--epochs", 12)
    runs, output = train(ranks, tmp_path / "runs.json", *both, *several)
    assert f"digits, {ranks} ranks" in output
    dense = runs.pop("dense")
    assert len(runs) == len(teams)
    for name, run in runs.items():
        assert run["same_bits"]
        assert run["steps"] == dense["steps"]
        assert run["accuracy"] >= dense["accuracy"] - 0.01, (name, run, dense)
        assert dense["bytes_sent"] >= 20 * run["bytes_sent"]


def test_wrong_arguments():
    runner = CliRunner()
    for arguments, words in (
        (["--density", "2"], "2.0 is not in the range 0<x<=1"),
        (["--sync", "magic"], "'magic' is not one of 'spardl', 'dense'"),
        (["--batch", "0"], "0 is not in the range x>=1"),
        (["--delay", "sometimes"], "Invalid value for --delay: "),
        (["--teams", "many"], "'many' is not a valid integer"),
        (["--seconds", "5"], "--seconds: spardl and dense keep all ranks in step"),
    ):
        result = runner.invoke(main, ["train", *arguments])
        assert result.exit_code == 2
        assert words in result.output


@pytest.mark.launches
def test_more_ranks_than_images():
    done = run_job(3, [sys.executable, "-m", "spardl", "train", "--batch", "2"], 60)
    assert done.returncode != 0
    assert "--batch 2 leaves some of the 3 ranks without images" in done.stdout


@pytest.mark.launches
def test_stragglers_do_not_hold_up_the_others(tmp_path):
    """Whoever is ready takes part: every rank ends with the same weights, having waited less than in bulk."""
    path, plot = tmp_path / "outcome.json", tmp_path / "loss.png"
    syncs = [flag for name in ("bsp", "rna", "rna-sparse", "rna-groups") for flag in ("--sync", name)]
    flags = [*syncs, "--delay", "uniform:0:20ms", "--epochs", "3", "--json", str(path), "--plot", str(plot)]
    done = run_job(4, [sys.executable, "-m", "spardl", "train", *flags], limit=150)
    assert done.returncode == 0, done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    runs = json.loads(path.read_text())["runs"]
    assert all(run["same_bits"] for run in runs.values())
    assert runs["bsp"]["contributors"] == 4
    assert set(runs["bsp"]["staleness"]) == {"0"}
    for name in ("rna", "rna-sparse", "rna-groups"):
        assert runs[name]["contributors"] < 4
        assert runs[name]["waited_seconds"] < runs["bsp"]["waited_seconds"]
        assert len(runs[name]["history"]) == 3
        gradients = sum(runs[name]["staleness"].values()) + runs[name]["dropped"]
        assert gradients == 4 * runs["bsp"]["steps"]
    assert sorted(runs["rna-groups"]["groups"].replace("|", "").split()) == ["0", "1", "2", "3"]
    assert runs["rna-sparse"]["dropped"] == 0
    assert runs["rna-sparse"]["bytes_sent"] < runs["rna"]["bytes_sent"] / 20
