"""Real ranks. The programs assert; here they are started, for every number of ranks, under a limit that kills them."""

import os
import time

import pytest

from mpi.launcher import launch, run, run_together

pytestmark = pytest.mark.launches
RANKS = [int(p) for p in os.environ.get("SPARDL_TEST_RANKS", "1,2,3,4,5,6,7,8").split(",")]
SEVERAL = [p for p in RANKS if p > 1]
SOME = [p for p in SEVERAL if p in (2, 3, 4, 6)]

# companions: several at once, groups, the user's messages; wants a new communicator, so it is first. reduces: thirty
# equal the reference. rivals: the law. faults: they reach every rank and leave no trace. plans: one choice for all.
WHERE = {"companions": [1, 2, 3, 4], "reduces": RANKS, "rivals": SEVERAL, "faults": [1, 2, 3, 4, 6], "plans": [1, 4]}


@pytest.mark.parametrize("ranks", RANKS)
def test_programs(ranks, tmp_path):
    arguments = {"reduces": ["native"], "plans": [tmp_path]}
    names = [name for name, where in WHERE.items() if ranks in where]
    run_together(ranks, *([f"{name}.py", *arguments.get(name, [])] for name in names), limit=120)


def test_numba_over_mpi():
    run(2, "reduces.py", "numba")


@pytest.mark.parametrize("ranks", SOME)
def test_resumed_run_equals_uninterrupted_one(ranks, tmp_path):
    run_together(ranks, *(["checkpoint.py", tmp_path, mode] for mode in ("straight", "save")))
    run(ranks, "checkpoint.py", tmp_path, "resume")  # in new processes
    for rank in range(ranks):
        for what in (f"{rank}", f"result.{rank}"):
            assert (tmp_path / f"straight.{what}").read_bytes() == (tmp_path / f"resume.{what}").read_bytes()


@pytest.mark.parametrize("ranks", SOME)
def test_killed_rank_ends_the_job(ranks):
    started = time.monotonic()
    done = launch(ranks, "killed.py", limit=40)
    assert done.returncode != 0
    assert "rank done" not in done.stdout
    assert time.monotonic() - started < 25


@pytest.mark.parametrize("ranks", SOME)
def test_uncaught_error_ends_every_rank(ranks):
    started = time.monotonic()
    done = launch(ranks, "uncaught.py", limit=40)
    assert done.returncode != 0
    assert "non-finite gradient on rank 1 at index 5" in done.stdout
    assert time.monotonic() - started < 25
