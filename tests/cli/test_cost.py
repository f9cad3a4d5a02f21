"""``spardl cost``: a profile that can be read back, a ranking, the paper's table, a picture."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from cost.profiles import ethernet
from mpi.launcher import run_job

from spardl.cli import main
from spardl.collectives.rivals import RIVALS
from spardl.cost.profile import Line, Profile


@pytest.mark.launches
@pytest.mark.parametrize("ranks", [1, 3])
def test_measure(ranks, tmp_path):
    output, plot = tmp_path / "profile.json", tmp_path / "profile.png"
    command = [sys.executable, "-m", "spardl", "cost", "measure", "--short"]
    done = run_job(ranks, [*command, "--output", str(output), "--plot", str(plot)])
    assert done.returncode == 0, done.stdout
    assert "all ranks at once" in done.stdout
    profile = Profile.load(output)
    assert profile.ranks == ranks
    assert (profile.exchange.beta > 0) == (ranks > 1)
    assert all(seconds > 0 for kernel, seconds in profile.gamma.items() if kernel != "round")
    assert profile.gamma["accumulate"] < profile.gamma["add"]  # a pass over all elements is vectorised, merging is not
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_profile_round_trip_and_what_is_none(tmp_path):
    path = Path(tmp_path / "p.json")
    profile = Profile(
        2,
        Line(1e-5, 1e-9),
        Line(2e-5, 2e-9, 1e-6, 1e-10),
        Line(1e-4, 4e-9),
        {"a–b": Line(1, 2)},
        {"add": 1e-9},
        [("ping", 8, 1e-5)],
    )
    profile.save(path)
    assert Profile.load(path) == profile
    path.write_text("{}")
    with pytest.raises(ValueError, match="is not a profile written by `spardl cost measure`"):
        Profile.load(path)


def test_predict_ranks_everything(tmp_path):
    path = tmp_path / "net.json"
    ethernet(6).save(path)
    flags = ["cost", "predict", "--profile", str(path), "--size", "14728266"]
    told = json.loads(CliRunner().invoke(main, [*flags, "--json"]).stdout)
    assert [p["seconds"] for p in told] == sorted(p["seconds"] for p in told)
    assert {p["algorithm"] for p in told} == {"spardl", *RIVALS}
    assert sorted(p["teams"] for p in told if p["algorithm"] == "spardl") == [1, 2, 3, 6]
    shown = CliRunner().invoke(main, [*flags, "--ranks", "4"], env={"COLUMNS": "150"})
    assert "4 ranks, n = 14,728,266, 1 %" in shown.stdout
    assert "The profile is of 6 ranks" in shown.stderr
    wrong = CliRunner().invoke(main, ["cost", "predict", "--profile", __file__, "--size", "9"])
    assert wrong.exit_code == 1
    assert "is not a profile written by" in wrong.stderr


def test_table_shows_the_papers_formulas_and_numbers():
    told = json.loads(CliRunner().invoke(main, ["cost", "table", "--json", "--ranks", "6"]).stdout)
    formulas = {row["algorithm"]: row for row in told["formulas"]}
    assert formulas["SparDL (no SAG)"]["bandwidth"] == formulas["SparDL (no SAG)"]["paper_bandwidth"] == "4 (P−1)/P k"
    numbers = {(row["algorithm"], row["teams"]): row for row in told["numbers"]}
    assert numbers["SparDL (no SAG)", 1] == {
        "algorithm": "SparDL (no SAG)",
        "teams": 1,
        "rounds": "6",
        "least": "3.333 k",
        "most": "3.333 k",
    }
    assert ("SparDL (R-SAG)", 3) not in numbers
    assert ("SparDL (B-SAG)", 3) in numbers
    shown = CliRunner().invoke(main, ["cost", "table", "--ranks", "5"], env={"COLUMNS": "220"})
    assert "4 (P−1)/P k" in shown.stdout
    assert "5 ranks" in shown.stdout
