"""Commands that fail on all ranks."""

from pathlib import Path

import pytest
from mpi.launcher import launch

PROGRAM = Path(__file__).parent / "programs" / "speaks_late.py"


@pytest.mark.launches
@pytest.mark.parametrize("runner", [(), ("-m", "mpi4py")], ids=["python", "mpi4py"])
def test_nobody_leaves_before_all_is_said(runner):
    """With mpi4py's runner the first rank that leaves with an error ends the job."""
    done = launch(3, PROGRAM, python_flags=runner)
    assert done.returncode == 3, done.stdout
    assert done.stdout.count("Error: this is why") == 1, done.stdout
