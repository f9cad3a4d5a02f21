"""The benchmark of Hop in virtual time, small: it has all rows, and the paper's claims about speed hold."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: tests have folders of the same names
import virtual as benchmark
import virtual_hop
from virtual_hop import AT_RANDOM, GRAPHS, ONE, RANKS, SETTINGS, STANDARD


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def command(*arguments):
        record = tmp_path / "virtual.json"
        monkeypatch.setattr(sys, "argv", ["benchmarks/virtual.py", *map(str, arguments), "--json", str(record)])
        assert benchmark.main() == 0
        rows = json.loads(record.read_text())["rows"]
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows], capsys.readouterr().out

    return command


def outcome(scenario, name, system, steps=100):
    return virtual_hop.run_hop(virtual_hop.make_case(RANKS, steps, scenario), name, SETTINGS[system])


def rate(*arguments):
    return outcome(*arguments).rate


def test_rows_and_plot(run, tmp_path):
    rows, told = run("hop", "--rounds", 10, "--ranks", 32, "--plot", tmp_path / "hop.png")
    assert len(rows) == 3 * (1 + 3 * (len(SETTINGS) + 1)) + 1
    bounded = [row for row in rows if row["bound"] is not None]
    assert len(bounded) == 3 * 3 * len(SETTINGS) + 1
    assert {row["within"] for row in bounded} == {"yes"}
    assert rows[-1]["ranks"] == 32
    assert "AD-PSGD" in told
    assert (tmp_path / "hop.png").stat().st_size > 0


def test_two_runs_are_equal():
    arguments = (AT_RANDOM, "double-ring", "backup 1, skip 10", 30)
    assert outcome(*arguments) == outcome(*arguments)


@pytest.mark.parametrize("name", GRAPHS)
def test_backup_workers_and_staleness_help_against_random_slowdown(name):
    standard = rate(AT_RANDOM, name, STANDARD)
    assert rate(AT_RANDOM, name, "backup 1") > 1.2 * standard
    assert rate(AT_RANDOM, name, "staleness 5") > 1.2 * standard


@pytest.mark.parametrize("name", GRAPHS)
def test_only_skipping_helps_against_one_slow_worker(name):
    """The others get ahead of it until they reach their bound, on the ring after 64 iterations."""
    standard, stale = outcome(ONE, name, STANDARD), outcome(ONE, name, "staleness 5", 150)
    assert standard.rate == pytest.approx(1 / (4 * virtual_hop.STEP), rel=0.02)
    assert stale.rate == pytest.approx(standard.rate, rel=0.02)
    assert rate(ONE, name, "backup 1", 150) == pytest.approx(standard.rate, rel=0.02)
    assert rate(ONE, name, "backup 1, skip 10") > 3 * standard.rate
    for seen in (standard, stale):
        assert seen.is_within
        assert seen.gap == seen.bound


def test_the_further_it_may_skip_the_better():
    short, far = (rate(ONE, "ring-based", f"backup 1, skip {most}") for most in (2, 10))
    assert short == pytest.approx(2 / (4 * virtual_hop.STEP), rel=0.1)
    assert far > 1.8 * short


def test_sparser_graphs_suffer_less():
    """Where the network is fast enough for all of them, so that they are equally fast with nobody slow."""
    case = virtual_hop.make_case(RANKS, 300, AT_RANDOM, step_seconds=3)
    ring, ring_based, double_ring = (virtual_hop.run_hop(case, name, SETTINGS[STANDARD]).rate for name in GRAPHS)
    assert ring > ring_based > double_ring
