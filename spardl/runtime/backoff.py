"""Waiting without burning a core."""

import os
import time
from functools import cache
from typing import NamedTuple


class _Pace(NamedTuple):
    spins: int  # polls at full speed: a message in shared memory takes a few microseconds
    yielding: float  # then for so many seconds polls that let other processes on this core go first
    first_nap: float  # then naps of doubling length, in seconds
    longest_nap: float


_ROOMY = _Pace(10, 100e-6, 20e-6, 500e-6)
# Where ranks share cores, whoever waits lets those go first who compute. They need the core for a few milliseconds at a
# time, and while they have it nobody polls; a nap leaves the core idle if they are done sooner, and is slow to end.
_CROWDED = _Pace(0, 5e-3, 20e-6, 2e-3)


@cache
def _pace() -> _Pace:
    """Crowded if the launcher told of more ranks on this host than there are cores."""
    # Each rank may be bound to cores of its own; the launcher, which is its parent, is not.
    cores = max(_usable_cores(0), _usable_cores(os.getppid()))
    told = (os.environ.get(name) for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"))
    return _CROWDED if any(ranks is not None and int(ranks) > cores for ranks in told) else _ROOMY


def _usable_cores(process: int) -> int:
    """0 if it is gone or none of ours."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    try:
        return len(os.sched_getaffinity(process))
    except OSError:
        return 0


class Backoff:
    """Call it after every poll that found nothing; ``reset`` it after one that found something."""

    def __init__(self) -> None:
        self._pace = _pace()
        self.reset()

    def reset(self) -> None:
        self._idle_polls = 0
        self._yielding_since = 0.0
        self._nap = self._pace.first_nap

    def __call__(self) -> None:
        self._idle_polls += 1
        if self._idle_polls <= self._pace.spins:
            return
        now = time.monotonic()
        self._yielding_since = self._yielding_since or now
        if now < self._yielding_since + self._pace.yielding:
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
            return
        time.sleep(self._nap)
        self._nap = min(2 * self._nap, self._pace.longest_nap)
