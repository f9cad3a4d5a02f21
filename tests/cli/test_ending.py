"""Commands that fail."""

import contextlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from mpi.launcher import launch

from spardl.cli.ending import end_job, let_be_read

PROGRAM = Path(__file__).parent / "programs" / "speaks_late.py"


@pytest.mark.launches
@pytest.mark.parametrize("runner", [(), ("-m", "mpi4py")], ids=["python", "mpi4py"])
def test_nobody_leaves_before_all_is_said(runner):
    """With mpi4py's runner the first rank that leaves with an error ends the job."""
    done = launch(3, PROGRAM, python_flags=runner)
    assert done.returncode == 3, done.stdout
    assert done.stdout.count("Error: this is why") == 1, done.stdout


@contextlib.contextmanager
def stdout_of_a_launcher():
    """The reading end of the pipe that stdout is meanwhile."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    launcher, stdout = os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "w")
    with launcher, stdout, contextlib.redirect_stdout(stdout):
        yield launcher


def test_what_was_said_has_been_read_before_the_job_is_ended():
    read, left = [], []
    with stdout_of_a_launcher() as launcher:
        reader = threading.Timer(0.2, lambda: read.append(launcher.read(100)))
        reader.start()
        print("this is why")
        end_job(SimpleNamespace(Abort=lambda code: left.append((code, launcher.read(100)))), 7)
        reader.join()
    assert left == [(7, None)]
    assert read == [b"this is why\n"]


def test_a_launcher_that_does_not_read_is_not_waited_for_for_ever():
    with stdout_of_a_launcher() as launcher:
        print("this is why")
        let_be_read(within=0.05)
        assert launcher.read(100) == b"this is why\n"
