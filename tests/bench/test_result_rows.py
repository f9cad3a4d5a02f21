"""Numbers of one contender, the table, the JSON."""

import json

import numpy as np
import pytest

from spardl.bench import record
from spardl.bench.race import least_sent
from spardl.bench.rows import COLUMNS, timing_row
from spardl.bench.runner import make_gradients
from spardl.bench.table import print_table


def test_times_over_ranks_and_runs():
    seconds = np.array([[1.0, 2.0, 9.0], [3.0, 1.0, 4.0], [2.0, 8.0, 5.0]])  # by rank
    row = timing_row(seconds, dense_bytes=16 * 10**9)
    assert [row[name] for name in ("min_ms", "median_ms", "max_ms")] == [2000, 3000, 5000]  # of 2, 3 and 5
    assert row["seconds"] == [3, 8, 9]
    assert (row["time_ms"], row["gb_per_s"], row["runs"]) == (8000, 2, 3)
    assert row["seconds_by_rank"] == seconds.tolist()


def test_table_leaves_blank_what_is_missing_and_drops_empty_columns(capsys):
    rows = [{"algorithm": "MPI_Allreduce", "time_ms": 1.25}, {"algorithm": "spardl", "teams": 2, "bytes_sent": 12345}]
    print_table("a title", COLUMNS, rows, caption="a caption")
    shown = capsys.readouterr().out
    assert "a title" in shown
    assert "a caption" in shown
    assert "1.25" in shown
    assert "12,345" in shown
    assert "predicted" not in shown


def test_record(tmp_path):
    path = tmp_path / "r.json"
    facts = record.machine("native")
    record.write(path, "spardl bench", facts, {"output": path}, [{"a": 1.5}], label="slow")
    told = json.loads(path.read_text())
    assert (told["command"], told["label"], told["rows"]) == ("spardl bench", "slow", [{"a": 1.5}])
    assert told["machine"]["numpy"] == np.__version__
    assert f"numpy {np.__version__}, backend native" in record.describe(facts)


def test_gradients_differ_everywhere_but_not_from_run_to_run():
    some = make_gradients(rank=1, size=1000, seed=3)
    assert all(grad.shape == (1000,) and grad.dtype == np.float32 for grad in some)
    assert np.all([a != b for i, a in enumerate(some) for b in some[:i]])
    np.testing.assert_array_equal(some, make_gradients(rank=1, size=1000, seed=3))
    assert not np.array_equal(some[0], make_gradients(rank=2, size=1000, seed=3)[0])


@pytest.mark.parametrize(("ranks", "sent"), [(1, 0), (2, 100), (4, 150)])
def test_what_a_dense_allreduce_cannot_do_without(ranks, sent):
    assert least_sent(ranks, 100) == sent
