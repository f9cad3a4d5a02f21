"""Starts a program of tests/mpi/programs under mpiexec, with a limit that kills it."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
TOGETHER = Path(__file__).parent / "together.py"
LIMIT = 60  # seconds


@functools.cache
def mpiexec():
    """The mpiexec that belongs to this Python's MPI, and the flags it needs to put many ranks on few cores."""
    beside_python = str(Path(sys.executable).parent)
    path = shutil.which("mpiexec", path=os.pathsep.join([beside_python, os.environ["PATH"]]))
    assert path is not None, "no mpiexec: pip install mpich"
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
    is_open_mpi = "Open MPI" in version or "OpenRTE" in version or "prte" in version.lower()
    return [path, "--oversubscribe"] if is_open_mpi else [path]


def launch(ranks, program, *arguments, limit=LIMIT, python_flags=()):
    """Runs a program to the end, or kills the job; returns the completed process with its output as text."""
    return run_job(ranks, [sys.executable, *python_flags, str(PROGRAMS / program), *map(str, arguments)], limit)


def run_job(ranks, command, limit=LIMIT):
    """The same for any command."""
    command = [*mpiexec(), "-n", str(ranks), *command]
    environment = os.environ | {
        "MPIEXEC_TIMEOUT": str(limit),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": str(PROGRAMS.parents[1]),
    }
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=PROGRAMS,  # not the checkout: the installed package is tested
        start_new_session=True,
    ) as job:
        try:
            output, _ = job.communicate(timeout=limit + 10)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            output, _ = job.communicate()
    return subprocess.CompletedProcess(command, job.returncode, output)


def run(ranks, program, *arguments, limit=LIMIT):
    """Launches and expects success on every rank; a failed assertion on one ends the job at once."""
    (output,) = run_together(ranks, [program, *arguments], limit=limit)
    return output


def run_together(ranks, *commands, limit=LIMIT):
    """The same for several programs in one launch; returns what each of them printed.

    A command is a program, or ``"-m"`` and a module, and arguments. What fails is the last that the output names.
    """
    lines = [[first if first == "-m" else PROGRAMS / first, *rest] for first, *rest in commands]
    lines = json.dumps([list(map(str, line)) for line in lines])
    done = launch(ranks, TOGETHER, lines, limit=limit, python_flags=("-m", "mpi4py"))
    assert done.returncode == 0, done.stdout[-8000:]
    assert done.stdout.count("rank is through") == ranks, done.stdout[-8000:]
    _, *outputs = re.split(r"^=== .*$", done.stdout, flags=re.MULTILINE)
    assert len(outputs) == len(commands), done.stdout[-8000:]
    return outputs
