"""Training with RNA whose program ends before ``finish``."""

from pathlib import Path

import pytest
from mpi.launcher import launch

pytestmark = pytest.mark.launches
PROGRAM = Path(__file__).parent / "programs" / "unfinished.py"


def test_forgotten_finish_happens_at_exit():
    done = launch(3, PROGRAM, "ends")
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.count("rank done") == 3
    assert done.stdout.count("ended without handle.finish()") == 1


def test_an_exception_on_one_rank_ends_all():
    done = launch(3, PROGRAM, "fails")
    assert done.returncode != 0
    assert "rank done" not in done.stdout
    assert done.stdout.count("PeerError: rank 1 failed with KeyError: 'no such file'") >= 2, done.stdout[-4000:]
