"""The benchmark of Partial Reduce in virtual time, small: it has all rows, and groups beat waiting for everyone."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from spardl import virtual
from spardl.collectives.dense_sum import dense_sum
from spardl.effects import Size
from spardl.runtime.network import cluster

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: tests have folders of the same names
import virtual as benchmark
import virtual_preduce

MODEL = virtual_preduce.MODELS[0]


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def command(*arguments):
        record = tmp_path / "virtual.json"
        monkeypatch.setattr(sys, "argv", ["benchmarks/virtual.py", *map(str, arguments), "--json", str(record)])
        assert benchmark.main() == 0
        rows = json.loads(record.read_text())["rows"]
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows], capsys.readouterr().out

    return command


def case(level, steps=30):
    return virtual_preduce.Case(8, MODEL.parameters, steps, virtual_preduce.uneven(0.3, level, 0.05))


def test_rows_beside_the_paper(run):
    rows, told = run("preduce", "--rounds", 5, "--ranks", 16)
    assert len(rows) == 3 * 3 * 4 + 1
    assert sum(row["paper_s"] is not None for row in rows) == 3 * 2 * 4
    fitted = [row for row in rows if row["system"] == "all-reduce" and row["level"] == 1]
    assert [row["update_s"] for row in fitted] == pytest.approx([0.432, 0.286, 0.820], rel=0.01)
    assert rows[-1]["ranks"] == 16
    assert "Partial Reduce, P = 4" in told


def test_two_runs_are_equal(run):
    arguments = ("preduce", "--rounds", 5, "--ranks", 16, "--jitter", 0.3)
    assert run(*arguments) == run(*arguments)


@pytest.mark.parametrize("level", [1, 3])
def test_a_group_of_all_is_an_all_reduce(level):
    """All-reduce takes a little longer: messages of early ranks keep ports busy that those of others need first."""
    together, grouped = virtual_preduce.all_reduce(case(level)), virtual_preduce.partial_reduce(case(level), 8)
    assert grouped.update_seconds == pytest.approx(together.update_seconds, rel=0.03)
    assert grouped.waited == pytest.approx(together.waited, rel=0.05)
    assert grouped.rho == pytest.approx(together.rho, abs=1e-9)
    assert grouped.staleness == together.staleness == 0


def test_groups_do_not_wait_for_slow_ranks():
    together, grouped = virtual_preduce.all_reduce(case(3)), virtual_preduce.partial_reduce(case(3), 3)
    assert grouped.update_seconds < together.update_seconds / 3
    assert grouped.waited < together.waited
    assert 0 < grouped.rho < 1


def test_majority_does_not_wait_for_slow_ranks():
    together, majority = virtual_preduce.all_reduce(case(3)), virtual_preduce.majority(case(3))
    assert majority.update_seconds < together.update_seconds
    assert majority.staleness > 0


@pytest.mark.parametrize("members", [2, 3, 4, 5, 7, 8])
def test_sizes_take_as_long_as_values(members):
    values = np.ones(100_001, np.float32)
    sizes = [virtual_preduce.dense_sum(members, rank, Size(values.nbytes)) for rank in range(members)]
    sums = [dense_sum(members, rank, values, np.empty_like(values)) for rank in range(members)]
    expected, got = (virtual(parts, network=cluster(members, "10gbit", "50us")) for parts in (sums, sizes))
    assert got.seconds == pytest.approx(expected.seconds)
    assert [own.bytes_sent for own in got.traffic] == [own.bytes_sent for own in expected.traffic]
