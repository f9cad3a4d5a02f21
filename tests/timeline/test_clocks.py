"""Clocks of real ranks."""

from pathlib import Path

import pytest
from mpi.launcher import run

pytestmark = pytest.mark.launches


def test_ranks_find_out_how_their_clocks_differ(tmp_path):
    run(3, Path(__file__).parent / "programs" / "clocks.py", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
