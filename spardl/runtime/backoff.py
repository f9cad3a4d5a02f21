"""Waiting without burning a core."""

import os
import time
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from spardl.runtime.bell import my_bell


class _Pace(NamedTuple):
    spins: int  # polls at full speed: a message in shared memory takes a few microseconds
    before_bell: float  # then for so many seconds polls that let other processes on this core go first
    before_naps: float  # the same where no bell announces what is waited for
    first_nap: float  # then, there, naps of doubling length, in seconds
    longest_nap: float


_ROOMY = _Pace(10, 100e-6, 100e-6, 20e-6, 500e-6)
# Where ranks share cores, whoever waits gets out of the way of those who compute. To sleep is better than to yield: who
# yields still counts as somebody who has work to do, and the cores are shared out accordingly.
_CROWDED = _Pace(0, 0.0, 300e-6, 20e-6, 1e-3)
_LISTENS = 3  # milliseconds until the next look, if the bell does not ring


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
        self._bell = my_bell()
        self.reset()

    def reset(self) -> None:
        self._idle_polls = 0
        self._yielding_since = 0.0
        self._nap = self._pace.first_nap

    def __call__(self, ringers: Collection[bytes] = ()) -> None:
        """``ringers``: the bells, by name, of those who ring this process's when there is something to find."""
        self._idle_polls += 1
        if self._idle_polls <= self._pace.spins:
            return
        bell = self._bell if ringers else None
        if self._yields(self._pace.before_naps if bell is None else self._pace.before_bell):
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
        elif bell is None:
            time.sleep(self._nap)
            self._nap = min(2 * self._nap, self._pace.longest_nap)
        else:
            bell.wait(_LISTENS, ringers)

    def _yields(self, seconds: float) -> bool:
        if seconds == 0:
            return False
        now = time.monotonic()
        self._yielding_since = self._yielding_since or now
        return now < self._yielding_since + seconds
