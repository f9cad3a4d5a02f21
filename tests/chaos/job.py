"""A job under mpiexec that is struck from outside: what its ranks told, and when which process ended."""

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from injection import FINISHING, PAUSE, READY, SIGNALS, Injection

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS))  # as pytest has it
from mpi.launcher import mpiexec  # noqa: E402

PROGRAMS = Path(__file__).parent / "programs"
STARTING = 180.0  # seconds in which all ranks have to be ready, and then to come to the moment of the fault
LAUNCHER = -1  # in place of a rank


@dataclass
class Course:
    """What happened, by the campaign's clock."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    struck: float | None = None  # the fault; None if the rank was gone before
    ended: dict[int, float] = field(default_factory=dict)  # by rank
    hung: tuple[int, ...] = ()  # who was still there when time was up
    seconds: float = 0.0  # from the fault to the end of the last process
    code: int | None = None  # of mpiexec, where nothing hung
    output: str = ""

    def told(self, what: str, rank: int | None = None) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["what"] == what and rank in (None, m["rank"])]


class Job:
    """Use it as a context: afterwards every process of the job is gone."""

    def __init__(self, injection: Injection, time_limit: float) -> None:
        self.course = Course()
        self._injection, self._size = injection, injection.ranks
        self._processes: dict[int, int] = {}  # by rank, a file descriptor that no other process can inherit
        self._last: dict[int, dict[str, Any]] = {}  # what each rank told last
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._segments: set[Path] = set()  # shared memory, which MPICH leaves behind when ranks are killed
        name = f"chaos-{secrets.token_hex(8)}"
        self._line.bind(f"\0{name}")
        self._poll = select.poll()
        self._poll.register(self._line, select.POLLIN)
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._launcher = subprocess.Popen(
            _command(injection),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=_environment(injection, time_limit) | {"CHAOS_SOCKET": name},
            cwd=PROGRAMS,  # not the checkout: the installed package is tested
            start_new_session=True,
        )
        self._watch(LAUNCHER, self._launcher.pid)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        for rank in set(self._processes) - {LAUNCHER}:
            self.send(rank, signal.SIGKILL)
        self._until(lambda: not self._processes, 10.0)
        if LAUNCHER in self._processes:
            os.killpg(self._launcher.pid, signal.SIGKILL)  # its session is its own
            self._until(lambda: not self._processes, 10.0)
        self._launcher.wait()
        for path in self._segments:
            path.unlink(missing_ok=True)
        self._output.seek(0)
        self.course.output = self._output.read()
        self._output.close()
        self._line.close()

    @property
    def alive(self) -> tuple[int, ...]:
        return tuple(sorted(self._processes))

    def come_to(self, moment: str | int, rank: int) -> bool:
        """Waits until all are ready and a rank has come so far. False if it ended before."""
        self._until(lambda: len(self.course.told("ready")) == self._size or not self._processes, STARTING)
        if moment == READY:
            return rank in self._processes
        self._until(lambda: rank not in self._processes or self._is_at(rank, moment), STARTING)
        return rank in self._processes

    def send(self, rank: int, number: signal.Signals) -> bool:
        """Sends a signal to a rank. False if it is gone."""
        try:
            signal.pidfd_send_signal(self._processes[rank], number)
        except (KeyError, ProcessLookupError):
            return False
        return True

    def listen(self, seconds: float) -> None:
        """Hears what is told meanwhile."""
        self._until(lambda: False, seconds)

    def wait(self, allowed: float) -> None:
        """Until every process is gone, or nobody has told of any progress for so many seconds."""
        self._until(lambda: not self._processes, allowed, since_progress=True)
        self.course.hung = self.alive
        if not self._processes:
            self.course.code = self._launcher.wait()

    def _is_at(self, rank: int, moment: str | int) -> bool:
        """Whether a rank has come so far, or further: its messages were heard while another was awaited."""
        last = self._last[rank]
        return last["what"] not in ("ready", "step") or (
            last["what"] == "step" and moment != FINISHING and last["step"] >= moment
        )

    def _until(self, happened: Callable[[], bool], seconds: float, since_progress: bool = False) -> None:
        deadline = time.monotonic() + seconds
        while not happened() and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in self._poll.poll(max(1, int(left * 1000))):
                if descriptor != self._line.fileno():
                    self._note_end(descriptor)
                elif self._hear() != "error" and since_progress:
                    deadline = time.monotonic() + seconds

    def _hear(self) -> str:
        """One message, so that nothing that was told is missed by who waits for it."""
        message: dict[str, Any] = json.loads(self._line.recv(65536)) | {"time": time.monotonic()}
        self.course.messages.append(message)
        self._last[message["rank"]] = message
        if message["what"] == "ready":
            self._watch(message["rank"], message["pid"])
            self._segments |= _shared_memory(message["pid"])
        return str(message["what"])

    def _watch(self, rank: int, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self.course.ended[rank] = time.monotonic()
            return
        self._processes[rank] = descriptor
        self._poll.register(descriptor, select.POLLIN)

    def _note_end(self, descriptor: int) -> None:
        (rank,) = (rank for rank, its in self._processes.items() if its == descriptor)
        del self._processes[rank]
        self._poll.unregister(descriptor)
        os.close(descriptor)
        self.course.ended[rank] = time.monotonic()


def run(injection: Injection, time_limit: float, mercy: float) -> Course:
    """Starts the job, strikes it, and sees how it ends.

    A process hangs that is there ``mercy`` seconds after the time limit, which begins when the fault happens, or when
    any rank last got on: RNA goes on without a rank that is gone, until training ends.
    """
    with Job(injection, time_limit) as job:
        course, victim = job.course, injection.victim
        came = job.come_to(injection.moment, victim)
        job.listen(injection.delay)
        well = came and not course.told("error")
        if well and job.send(victim, SIGNALS.get(injection.fault, signal.SIGUSR2)):
            course.struck = time.monotonic()
        if injection.fault == PAUSE:
            job.listen(injection.pause * time_limit)
            job.send(victim, signal.SIGCONT)
        job.wait(time_limit + injection.patience + mercy)
        course.seconds = time.monotonic() - (course.struck or time.monotonic())
    return course


def _shared_memory(pid: int) -> set[Path]:
    """The files of shared memory that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:  # it is gone
        return set()
    return {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line}


def _command(injection: Injection) -> list[str]:
    flags = [] if injection.cleanup or "--oversubscribe" in mpiexec() else ["-disable-auto-cleanup"]
    python = [sys.executable, *(["-m", "mpi4py"] if injection.with_mpi4py else [])]
    arguments = [str(PROGRAMS / injection.program), json.dumps(injection.arguments)]
    return [*mpiexec(), *flags, "-n", str(injection.ranks), *python, *arguments]


def _environment(injection: Injection, time_limit: float) -> dict[str, str]:
    return os.environ | {
        "MPIEXEC_TIMEOUT": "600",
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "SPARDL_TIMEOUT": str(time_limit),
        "SPARDL_STALL_WARNING": str(time_limit / 3 if injection.warns else 0),
    }
