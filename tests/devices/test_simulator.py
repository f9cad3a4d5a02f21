"""Runs the tests of ``simulated/`` where they can: in a process that simulates CUDA."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SIMULATED = Path(__file__).parent / "simulated"
LIMIT = 600  # seconds


@pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="this is that process already")
@pytest.mark.parametrize("tests", sorted(SIMULATED.glob("test_*.py")), ids=lambda path: path.stem)
def test_in_numbas_simulator(tests):
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "SPARDL_TEST_EXAMPLES": "12"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(tests)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
