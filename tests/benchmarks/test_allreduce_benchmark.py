"""The all-reduce benchmark: what it makes of several launches, and one real setting."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: tests have folders of the same names

import allreduce
from targets import at_least, at_most


def launch(ratio, wrong=0):
    dense = {"time_ms": 100.0, "gb_per_s": 1.0}
    times = {"time_ms": 100 * ratio, "seconds": [0.1 * ratio, 0.2 * ratio], "gb_per_s": 1 / ratio}
    return dense, {**times, "ratio": ratio, "bytes_per_dense": 0.01, "wrong": wrong}


def test_the_median_of_launches_is_judged():
    setting = allreduce.Setting(6, 1000, at_most(0.2, 0.12))
    row = allreduce.told(setting, [launch(0.25), launch(0.15), launch(0.19, wrong=2)])
    assert (row["least"], row["ratio"], row["most"]) == (0.15, 0.19, 0.25)
    assert row["least_ms"] == pytest.approx(15)
    assert (row["target"], row["verdict"], row["wrong"]) == ("≤ 0.2, aim 0.12", "floor", 2)


@pytest.mark.parametrize(("ratio", "verdict"), [(0.12, "aim"), (0.2, "floor"), (0.21, "MISSED")])
def test_targets(ratio, verdict):
    assert at_most(0.2, 0.12).verdict(ratio) == verdict
    assert at_least(5, 8.3).verdict(1 / ratio) == verdict


@pytest.mark.launches
def test_as_a_command(tmp_path):
    output = tmp_path / "allreduce.json"
    flags = ["--setting", "2:20000", "--launches", "2", "--repeats", "2", "--json", str(output)]
    command = [sys.executable, allreduce.__file__, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(output.read_text())["rows"]
    assert (row["ranks"], row["size"], len(row["ratios"]), row["wrong"]) == (2, 20_000, 2, 0)
    assert "20,000" in done.stdout
