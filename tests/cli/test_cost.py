"""``spardl cost measure``: a profile that can be read back, a table, a picture."""

import sys
from pathlib import Path

import pytest
from mpi.launcher import run_job

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
    assert all(seconds > 0 for seconds in profile.gamma.values())
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
