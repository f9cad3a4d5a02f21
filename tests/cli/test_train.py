"""``spardl train``: the digits job under mpiexec, and its words for what is wrong."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from mpi.launcher import run_job, run_together

from spardl.cli import digits, main

TRAIN = ["-m", "spardl", "train"]


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory):
    """A folder with what two trainings on four ranks left, and what they printed."""
    folder = tmp_path_factory.mktemp("four")
    rna, models = ("rna", "rna-sparse", "rna-groups"), ("preduce", "preduce-dynamic", "hop", "hop-sparse", "adpsgd")
    syncs = [flag for name in ("bsp", *rna, *models) for flag in ("--sync", name)]
    stragglers = [*TRAIN, *syncs, "--delay", "uniform:0:20ms", "--epochs", 3, "--plot", folder / "loss.png"]
    commands = [digits_command([1, 2], folder / "digits.json"), [*stragglers, "--json", folder / "stragglers.json"]]
    return folder, run_together(4, *commands, limit=300)


def digits_command(teams, json_path):
    several = [flag for number in teams for flag in ("--teams", number)]
    return [*TRAIN, "--sync", "dense", "--sync", "spardl", *several, "--epochs", 12, "--json", json_path]


def runs_of(json_path):
    return json.loads(json_path.read_text())["runs"]


@pytest.mark.launches
def test_digits_on_four_ranks(four_ranks):
    folder, (output, _) = four_ranks
    assert "digits, 4 ranks" in output
    assert_within_a_point_of_dense_with_a_twentieth_of_the_bytes(runs_of(folder / "digits.json"), teams=[1, 2])


@pytest.mark.launches
@pytest.mark.parametrize(("ranks", "teams"), [(3, [3]), (6, [2, 3])])
def test_digits(ranks, teams, tmp_path):
    (output,) = run_together(ranks, digits_command(teams, tmp_path / "digits.json"), limit=300)
    assert f"digits, {ranks} ranks" in output
    assert_within_a_point_of_dense_with_a_twentieth_of_the_bytes(runs_of(tmp_path / "digits.json"), teams)


def assert_within_a_point_of_dense_with_a_twentieth_of_the_bytes(runs, teams):
    dense = runs.pop("dense")
    assert len(runs) == len(teams)
    for name, run in runs.items():
        assert run["same_bits"]
        assert run["steps"] == dense["steps"]
        assert run["accuracy"] >= dense["accuracy"] - 0.01, (name, run, dense)
        assert dense["bytes_sent"] >= 20 * run["bytes_sent"]


def test_digits_are_those_of_scikit_learn():
    from sklearn import datasets  # not above: it takes a second

    images, labels = datasets.load_digits(return_X_y=True)
    inputs, targets, test_inputs, test_targets = digits.load_digits()
    assert len(test_targets) == len(labels) // 5
    ours = np.column_stack([np.concatenate([test_inputs, inputs]) * 16, np.concatenate([test_targets, targets])])
    np.testing.assert_array_equal(sorted(ours.tolist()), sorted(np.column_stack([images, labels]).tolist()))


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"the digits come with scikit-learn: pip install 'spardl\[train\]'"):
        digits.load_digits()


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
def test_stragglers_do_not_hold_up_the_others(four_ranks):
    """Whoever is ready takes part: every rank ends with the same weights, having waited less than in bulk."""
    folder, _ = four_ranks
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    runs = runs_of(folder / "stragglers.json")
    assert all(run["same_bits"] for run in runs.values())
    assert runs["bsp"]["contributors"] == 4
    assert set(runs["bsp"]["staleness"]) == {"0"}
    for name in ("rna", "rna-sparse", "rna-groups"):
        assert runs[name]["contributors"] < 4
        assert runs[name]["waited_seconds"] < runs["bsp"]["waited_seconds"]
        assert len(runs[name]["history"]) == 3
        gradients = sum(runs[name]["staleness"].values()) + runs[name]["dropped"]
        assert gradients == 4 * runs["bsp"]["steps"]
    for name in ("preduce", "preduce-dynamic"):
        assert runs[name]["contributors"] <= 2
        assert sum(runs[name]["staleness"].values()) == 4 * runs["bsp"]["steps"]
        assert 0 < runs[name]["rho"] < 1
    assert runs["rna"]["rho"] is None
    for name in ("hop", "hop-sparse", "adpsgd"):
        assert runs[name]["distance"] > 0
        assert len(runs[name]["history"]) == 3
    assert runs["hop-sparse"]["bytes_sent"] < runs["hop"]["bytes_sent"] / 30
    assert sorted(runs["rna-groups"]["groups"].replace("|", "").split()) == ["0", "1", "2", "3"]
    assert runs["rna-sparse"]["dropped"] == 0
    assert runs["rna-sparse"]["bytes_sent"] < runs["rna"]["bytes_sent"] / 20


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_what_cannot_be_written_is_told_before_training(tmp_path, monkeypatch, option):
    monkeypatch.setattr(digits, "run", lambda *_: pytest.fail("trained"))
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below.png"
    wrong = {
        "--json": {below: "Not a directory", tmp_path / "no" / "folder": "No such file or directory"},
        "--plot": {below: "File exists", tmp_path / "a.bad": "expected a name that ends in one of"},
    }[option]
    for path, words in wrong.items():
        refused = CliRunner().invoke(main, ["train", option, str(path)])
        assert refused.exit_code == 1
        assert f"Error: {path} cannot be" in refused.output
        assert words in refused.output
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_trying_a_path_leaves_what_is_there(tmp_path, monkeypatch):
    def stop(*_):
        assert (tmp_path / "old.json").read_text() == "old"
        assert not (tmp_path / "new.png").exists()
        raise digits.Stopped("seen")

    monkeypatch.setattr(digits, "run", stop)
    (tmp_path / "old.json").write_text("old")
    paths = ["--json", str(tmp_path / "old.json"), "--plot", str(tmp_path / "new.png")]
    assert "seen" in CliRunner().invoke(main, ["train", *paths]).output


def test_a_full_disk_does_not_cost_the_table():
    paths = ["--json", "/dev/full", "--plot", "/dev/full"]
    full = CliRunner().invoke(main, ["train", "--epochs", "1", *paths])
    assert full.exit_code == 1
    assert "digits, 1 ranks" in full.output
    assert full.output.count("/dev/full cannot be written: [Errno 28] No space left on device") == 2
