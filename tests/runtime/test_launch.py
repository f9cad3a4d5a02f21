"""What launchers leave in the environment, and what is made of it."""

import pytest
from mpi4py import MPI

import spardl
from spardl.runtime import launch

HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALNRANKS": "4", "PMI_FD": "9"}
PRTE = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "x"}
SLURM = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, None),  # a batch script, not a task of srun
        (HYDRA, ("MPICH's mpiexec", 4, 2, "PMI")),
        (PRTE, ("Open MPI's mpiexec", 3, 1, "PMIx")),
        (SLURM, ("srun", 6, 5, "nothing")),
        (SLURM | {"PMI_FD": "7", "PMI_RANK": "5", "PMI_SIZE": "6"}, ("srun", 6, 5, "PMI")),
        (SLURM | {"PMIX_NAMESPACE": "slurm.pmix"}, ("srun", 6, 5, "PMIx")),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "2"} | HYDRA, ("MPICH's mpiexec", 4, 2, "PMI")),  # which srun started
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"} | PRTE, ("Open MPI's mpiexec", 3, 1, "PMIx")),
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, ("a PMI launcher", 4, 0, "PMI")),
    ],
)
def test_told(environ, expected):
    assert launch.told(environ) == expected


@pytest.mark.parametrize(
    ("environ", "family", "foreign", "cure"),
    [
        (HYDRA, "MPICH", False, ""),
        (HYDRA, "Open MPI", True, "Start it with Open MPI's own mpiexec, /mpi/bin/mpiexec"),
        (PRTE, "Open MPI", False, ""),
        (PRTE, "MPICH", True, "Start it with MPICH's own mpiexec, /mpi/bin/mpiexec"),
        (SLURM, "MPICH", True, "`srun --mpi=pmi2`"),
        (SLURM, "Open MPI", True, "`srun --mpi=pmix`"),
        (SLURM | {"PMI_RANK": "5"}, "Open MPI", True, "`srun --mpi=pmix`"),
        (SLURM | {"PMIX_NAMESPACE": "x"}, "Open MPI", False, ""),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, "Open MPI", False, ""),
    ],
)
def test_a_launcher_that_mpi_does_not_understand(environ, family, foreign, cure):
    told = launch.told(environ)
    assert launch.is_foreign(told, family) == foreign
    if foreign:
        assert cure in launch.cure(told, family, "/mpi/bin/mpiexec")


@pytest.fixture
def no_launcher(monkeypatch):
    for name in (*HYDRA, *PRTE, *SLURM):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_an_ordinary_script_is_warned_once_by_the_first_process(no_launcher):
    for name, value in (SLURM | {"SLURM_PROCID": "0"}).items():
        no_launcher.setenv(name, value)
    comm = MPI.COMM_SELF.Dup()
    with pytest.warns(
        RuntimeWarning, match=r"srun started 6 processes, but to MPI .* each is alone: .* `srun --mpi=pm"
    ):
        spardl.SparseAllreduce(comm, 10, k=1)
    spardl.SparseAllreduce(comm, 10, k=1)  # warnings are errors here
    no_launcher.setenv("SLURM_PROCID", "1")
    spardl.SparseAllreduce(MPI.COMM_SELF.Dup(), 10, k=1)


def test_the_library_in_this_process_is_found():
    assert "libmpi" in launch.library_path()
