"""A rank that leaves, or stops, while others count on it: they hear who it was, and the job ends."""

import os
import re
import subprocess
import sys

import pytest

from mpi.launcher import launch

pytestmark = pytest.mark.launches


def said(how, **limits):
    """What the other ranks of three said they were told."""
    done = launch(3, "leaves.py", how, **limits)
    assert done.returncode != 0, done.stdout[-4000:]
    told = re.findall("<rank done: (.*?)>", done.stdout, re.DOTALL)
    assert len(told) == 2, done.stdout[-4000:]
    return set(told), done.stdout


@pytest.mark.parametrize("where", ["between", "in", "before"])
def test_others_raise_what_a_rank_left_by(where):
    told, output = said(where)
    assert told == {"PeerError: rank 1 failed with KeyError: 'no such file'"}
    assert "KeyError: 'no such file'" in output


def test_others_hear_of_an_exception_at_once_even_if_a_timeline_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARDL_TIMELINE", str(tmp_path / "timeline.json"))
    told, _ = said("between")
    assert told == {"PeerError: rank 1 failed with KeyError: 'no such file'"}


def test_others_hear_at_once_that_a_rank_has_exited():
    ((text,), _) = said("exit")
    assert text.startswith("PeerError: rank 1 has ended its program, by sys.exit or at the end of its script")


def test_a_frozen_rank_is_named_and_the_job_ends_all_the_same():
    told, output = said("frozen")
    assert all("rank 1 did not answer within 4 s" in text and "SPARDL_TIMEOUT" in text for text in told), told
    assert output.count("spardl.errors.PeerTimeout") >= 1, output[-4000:]


def alone(code, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI", "MPI"))}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment | variables, capture_output=True, text=True, timeout=120
    )


def test_torchrun_is_no_launcher_for_mpi():
    variables = {"WORLD_SIZE": "4", "RANK": "2", "TORCHELASTIC_RESTART_COUNT": "0"}
    code = "from mpi4py import MPI; import spardl; spardl.SparseAllreduce(MPI.COMM_WORLD, 10, k=1)"
    done = alone(code, **variables)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: torchrun started 4 processes"), done.stderr
    assert "`mpiexec -n 4 python script.py`" in last
    assert alone(code).returncode == 0


@pytest.mark.parametrize("code", ["import spardl.torch", "import spardl; spardl.SparseAllreduce"])
def test_no_mpi_library_is_a_sentence(code):
    done = alone(code, MPI4PY_LIBMPI="/no/such/libmpi.so")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: spardl needs mpi4py and an MPI library"), done.stderr
    assert "pip install" in last
    assert "cannot load MPI library" not in done.stderr.replace(last, ""), "no traceback from deep inside"


def test_no_mpi_library_is_a_sentence_for_the_command():
    done = alone("from spardl.cli import main; main(['bench'])", MPI4PY_LIBMPI="/no/such/libmpi.so")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: spardl needs mpi4py and an MPI library")
