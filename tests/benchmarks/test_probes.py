"""The probe experiment as a command: table, JSON and plot say that the second probe is the one that counts."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: tests have folders of the same names
import probes


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["benchmarks/probes.py", *map(str, arguments)])
        probes.main()
        return capsys.readouterr().out

    return command


def test_table_json_and_plot(run, tmp_path):
    record, plot = tmp_path / "probes.json", tmp_path / "probes.png"
    table = run("--rounds", 4000, "--json", record, "--plot", plot)
    told = json.loads(record.read_text())
    rows = told["rows"]
    assert [row["probes"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert (
            10 <= row["p5_ms"] <= row["quartile1_ms"] <= row["median_ms"] <= row["quartile3_ms"] <= row["p95_ms"] <= 50
        )
        assert row["median_ms"] == pytest.approx(row["expected_ms"], abs=1.5)
        assert f"{row['median_ms']:.1f}" in table
    assert rows[1]["ratio_to_one"] < 0.8
    assert rows[1]["saves_ms"] > sum(row["saves_ms"] for row in rows[2:])
    assert told["parameters"]["nodes"] == 100
    assert told["command"].startswith("python benchmarks/probes.py --rounds 4000")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_seed_decides(run):
    assert run("--rounds", 50) == run("--rounds", 50) != run("--rounds", 50, "--seed", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", 4], "--nodes 4: expected at least as many as are probed, 5"),
        (["--rounds", 0], "expected --rounds of at least 1"),
        (["--seed", -1], "a --seed of at least 0"),
    ],
)
def test_wrong_flags(run, capsys, arguments, message):
    with pytest.raises(SystemExit):
        run(*arguments)
    assert message in capsys.readouterr().err
