"""Whether the process of another rank of this host still runs, as Linux tells it in /proc."""

from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

_STOPPED_OR_DEAD = "TtZXx"  # by a signal, by a debugger, and three ways of being dead


class Process(NamedTuple):
    """A process by its number and when it was started: numbers are used again."""

    number: int
    began: int  # clock ticks since the host was started


class State(Enum):
    RUNS = "runs"
    GONE = "gone"  # stopped, or dead
    UNKNOWN = "unknown"


NOBODY = Process(0, 0)


@cache
def this_process() -> Process:
    """NOBODY where there is no /proc."""
    told = _stat("self")
    return NOBODY if told is None else told[0]


def exists(process: Process) -> bool:
    """Whether this process can see it: others may be on another host, or in another container."""
    told = _stat(str(process.number))
    return process != NOBODY and told is not None and told[0] == process


def state(process: Process) -> State:
    """Of one that existed once."""
    if process == NOBODY:
        return State.UNKNOWN
    told = _stat(str(process.number))
    if told is None or told[0] != process or told[1] in _STOPPED_OR_DEAD:
        return State.GONE
    return State.RUNS


def _stat(process: str) -> tuple[Process, str] | None:
    try:
        text = Path("/proc", process, "stat").read_text()
    except OSError:
        return None
    number = int(text.split(" ", 1)[0])
    fields = text.rpartition(")")[2].split()  # the command before it may have blanks and brackets
    return Process(number, int(fields[19])), fields[0]
