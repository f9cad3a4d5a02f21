"""A SLURM cluster of four nodes on this machine, for the length of the run."""

import contextlib
import subprocess
from pathlib import Path

import pytest

from slurm.user import TESTCLUSTER, Slurm


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    state, folder = tmp_path_factory.mktemp("cluster"), tmp_path_factory.mktemp("jobs")
    subprocess.run([TESTCLUSTER, "up", state], check=True, timeout=600)  # it may have to install SLURM first
    daemons = [int(path.read_text()) for path in state.glob("*/pid")]
    try:
        yield Slurm(state / "slurm.conf", folder)
    finally:
        subprocess.run([TESTCLUSTER, "down", state], check=True, timeout=120)
    assert len(daemons) == 6  # munged, slurmctld, four slurmd
    assert not [pid for pid in daemons if runs(pid)]


def runs(pid):
    """What has ended has no command line any more, even where nobody collects it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False
