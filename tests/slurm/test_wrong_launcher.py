"""srun with the wrong --mpi: to Open MPI every task is alone and nothing fails; the doctor says so."""

import re
import sys
from pathlib import Path

import pytest

from slurm.user import OPEN_MPI

pytestmark = [pytest.mark.launches, pytest.mark.slurm]


def srun(slurm, protocol, bin_folder, *command):
    """On two nodes, with a limit of its own in case it hangs."""
    done = slurm.attempt(
        "srun", f"--mpi={protocol}", "--nodes=2", "--time=2", str(bin_folder / command[0]), *command[1:]
    )
    return done.returncode, done.stdout + done.stderr


def test_open_mpi_without_pmix(slurm):
    size = "from mpi4py import MPI; print('ranks:', MPI.COMM_WORLD.size)"
    code, output = srun(slurm, "pmi2", OPEN_MPI / "bin", "python", "-c", size)
    assert code == 0
    assert output.count("ranks: 1") == 2
    code, output = srun(slurm, "pmi2", OPEN_MPI / "bin", "spardl", "doctor")
    assert code == 1
    assert re.search(r"srun started 2 processes, but to MPI \(mpi4py uses Open MPI .*\) each is alone", output)
    assert "`srun --mpi=pmix`" in output
    assert "not fit to train: " in output


def test_open_mpi_with_pmix(slurm):
    code, output = srun(slurm, "pmix", OPEN_MPI / "bin", "spardl", "doctor")
    assert "each is alone" not in output
    assert code == 0, output


def test_mpich_with_pmix(slurm):
    if slurm.launcher != "pmi2":
        pytest.skip("this Python's MPI is not MPICH")
    code, output = srun(slurm, "pmix", Path(sys.executable).parent, "spardl", "doctor")
    assert code != 0
    assert "`srun --mpi=pmi2`" in output
