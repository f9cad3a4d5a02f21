"""Waiting without burning a core."""

import os
import time

_SPINS = 20  # polls at full speed: a message in shared memory takes a few microseconds
_YIELDS = 50  # then let other ranks on this core run
_FIRST_NAP, _LONGEST_NAP = 20e-6, 500e-6


class Backoff:
    """Call it after every poll that found nothing; ``reset`` it after one that found something."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._idle_polls = 0
        self._nap = _FIRST_NAP

    def __call__(self) -> None:
        self._idle_polls += 1
        if self._idle_polls <= _SPINS:
            return
        if self._idle_polls <= _SPINS + _YIELDS:
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
            return
        time.sleep(self._nap)
        self._nap = min(2 * self._nap, _LONGEST_NAP)
