"""What is looked up, and ``spardl doctor`` on one rank and on several."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from mpi.launcher import run_job

import spardl
from spardl.cli import main
from spardl.doctor import clocks, start
from spardl.doctor.sockets import local_addresses
from spardl.environment import VARIABLES
from spardl.runtime.launch import Launch

PROGRAMS = Path(__file__).parent / "programs"


def test_sockets_to_other_hosts():
    table = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100000A:1F90 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 20 4 30 10 -1
   1: 0100000A:1F91 0100000A:C351 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1
   2: 0500000A:1F92 0200000A:C352 01 00000000:00000000 00:00000000 00000000     0        0 99 1 0 20 4 30 10 -1
   3: 0700000A:1F93 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1
"""
    # One that leaves the host; one to this host, one of another process, one that listens.
    assert local_addresses(table, {"11", "12", "13"}) == {"10.0.0.1"}


@pytest.mark.parametrize("ahead", [0.0, 2.5, -7.0])
def test_clock_offsets(ahead):
    ticks = iter(range(10**6))

    def now(fast):
        return lambda: next(ticks) * 1e-6 + (ahead if fast else 0.0)  # every look at a clock takes a microsecond

    found, nothing, _ = spardl.loopback([clocks.offsets(rank, [2], now(rank == 2)) for rank in range(3)])
    assert found == {2: pytest.approx(ahead, abs=1e-5)}
    assert nothing == {}


def test_ranks_of_this_host():
    assert start.on_this_host({}) == (1, True)
    assert start.on_this_host({"MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "1"}) == (4, False)
    assert start.on_this_host({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_LOCALID": "0"}) == (4, True)


def test_what_is_told_before_mpi_starts():
    foreign = Launch("Open MPI's mpiexec", 4, 0, "PMIx")
    told = start.forebodings(foreign, "MPICH", "/mpi/bin/mpiexec", ranks=4, free=3 * 2**20)
    assert "Open MPI's mpiexec offers PMIx to start by, and mpi4py uses MPICH" in told[0]
    assert "/mpi/bin/mpiexec" in told[0]
    assert "3.0 MiB free, where 4 ranks of MPICH ask for 21: MPI dies of a bus error" in told[1]
    assert start.forebodings(foreign._replace(rank=1), "MPICH", "", 4, 2**30) == []  # the first of all speaks
    assert start.forebodings(Launch("srun", 4, 0, "nothing"), "MPICH", "", 4, 2**30) == []  # MPI starts, alone
    assert start.forebodings(None, "MPICH", "", 1, 2**30) == []
    assert start.free_shared_memory("/no/such/folder") == -1


def invoke(*flags, **environment):
    return CliRunner().invoke(main, ["doctor", *flags], env=environment)


def test_one_rank():
    alone = invoke()
    assert alone.exit_code == 0, alone.output
    assert "advice   launch    one rank. To check a job" in alone.stdout
    assert alone.stdout.endswith("fit to train\n")
    everything = json.loads(invoke("--json", "-").stdout)
    assert everything["fit"] is True
    assert everything["ranks"][0]["packages"]["spardl"] == spardl.__version__


def test_tasks_of_srun_that_are_alone():
    told = invoke(SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0", PATH=os.defpath)
    assert told.exit_code == 1
    assert "srun started 4 processes, but to MPI" in told.stdout
    assert "Start it with `srun --mpi=pm" in told.stdout
    assert told.stdout.endswith("not fit to train: launch\n")
    other = invoke(SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="3")
    assert (other.exit_code, other.stdout) == (1, "")


def test_kernels_that_are_not_there():
    told = invoke(SPARDL_BACKEND="fortran")
    assert told.exit_code == 1
    assert "error    kernels   rank 0: backend: expected one of" in told.stdout


def test_variables():
    told = invoke("--env", SPARDL_TIMEOUT="17").stdout
    assert all(variable.name in told for variable in VARIABLES)
    assert "│ 17 " in told


@pytest.mark.launches
def test_three_ranks(tmp_path):
    ticket = tmp_path / "ticket.json"
    done = run_job(3, [sys.executable, "-m", "spardl", "doctor", "--json", str(ticket)])
    assert done.returncode == 0, done.stdout
    assert "3 ranks on 1 host, started by" in done.stdout
    told = json.loads(ticket.read_text())
    levels = {verdict["item"]: verdict["level"] for verdict in told["verdicts"]}
    assert levels["law"] == levels["consensus"] == levels["spardl"] == levels["launch"] == "ok"
    assert [facts["rank"] for facts in told["ranks"]] == [0, 1, 2]


@pytest.mark.launches
def test_one_rank_with_other_code(tmp_path):
    """Really: rank 2 imports a copy of spardl with one line more."""
    shutil.copytree(Path(spardl.__file__).parent, tmp_path / "spardl", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "spardl" / "wire.py").open("a") as module:
        module.write("# changed\n")
    program = [sys.executable, "-m", "mpi4py", str(PROGRAMS / "mixed.py")]
    done = run_job(2, [*program, ":", "-n", "1", "env", f"PYTHONPATH={tmp_path}", *program])
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("rank done") == 3, done.stdout


@pytest.mark.launches
def test_a_rank_that_does_not_answer():
    """Told within the time that was given, and the job ends."""
    sleeper = "from mpi4py import MPI; import time; time.sleep(50)"
    doctor = [sys.executable, "-m", "spardl", "doctor", "--timeout", "3"]
    done = run_job(1, [*doctor, ":", "-n", "1", sys.executable, "-c", sleeper], limit=40)
    assert done.returncode != 0
    assert "error    messages  first use of a communicator of 2 ranks: rank 1 did not come within 3 s" in done.stdout
    assert "not fit to train: messages" in done.stdout
