"""Real ranks. The programs assert; here they are started, for every number of ranks, under a limit that kills them."""

import os
import time

import pytest

from mpi.launcher import launch, run

pytestmark = pytest.mark.launches
RANKS = [int(p) for p in os.environ.get("SPARDL_TEST_RANKS", "1,2,3,4,5,6,7,8").split(",")]
SEVERAL = [p for p in RANKS if p > 1]
SOME = [p for p in SEVERAL if p in (2, 3, 4, 6)]


@pytest.mark.parametrize("ranks", RANKS)
def test_thirty_reduces_equal_the_reference(ranks):
    run(ranks, "reduces.py", "native")


@pytest.mark.parametrize("ranks", SEVERAL)
def test_rivals(ranks):
    run(ranks, "rivals.py")


@pytest.mark.parametrize("ranks", [p for p in RANKS if p in (1, 4)])
def test_plans(ranks, tmp_path):
    run(ranks, "plans.py", tmp_path)


def test_other_backends_over_mpi():
    run(2, "reduces.py", "numba")


@pytest.mark.parametrize("ranks", [p for p in RANKS if p in (1, 2, 3, 4, 6)])
def test_faults_reach_every_rank_and_leave_no_trace(ranks):
    run(ranks, "faults.py")


@pytest.mark.parametrize("ranks", [p for p in RANKS if p in (1, 2, 3, 4)])
def test_several_collectives_groups_and_user_messages(ranks):
    run(ranks, "companions.py")


@pytest.mark.parametrize("ranks", SOME)
def test_resumed_run_equals_uninterrupted_one(ranks, tmp_path):
    for mode in ("straight", "save", "resume"):
        run(ranks, "checkpoint.py", tmp_path, mode)
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
