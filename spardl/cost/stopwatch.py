"""Times patterns of messages on all ranks together."""

import time
from collections.abc import Callable

import numpy as np

from spardl.agreement import gather_hosts, gather_json, open_channel
from spardl.effects import Bytes, Collective
from spardl.runtime.channel import Channel
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task

Pattern = Callable[[Group, Bytes, int], Collective[None]]
_SECONDS_EACH = 0.05  # about how long to repeat a size
_REPEATS = 5
_PATIENCE = 2.0  # seconds for all repeats of a size, but two there will be
_NOTHING = np.zeros(0, np.uint8)


class Stopwatch:
    """Of one group of ranks."""

    def __init__(self, group: Group, timeout: float) -> None:
        self.group, self._timeout = group, timeout
        self.channel: Channel = open_channel(group, dict, timeout, "measuring")

    def time(self, size: int, pattern: Pattern, messages: int = 1) -> list[float]:
        """Seconds per message, of several repeats; each is the slowest rank's. ``messages``: in turn, per count."""
        if self.group.size == 1:
            return [0.0] * _REPEATS
        payload = np.zeros(size, np.uint8)
        self._run(pattern, payload, 1)
        once = self._run(pattern, payload, 1)
        count = int(np.clip(_SECONDS_EACH / max(once, 1e-7), 1, 100))
        repeats = int(np.clip(_PATIENCE / max(once * count, 1e-7), 2, _REPEATS))
        return [self._run(pattern, payload, count) / messages for _ in range(repeats)]

    def once(self, pattern: Pattern) -> float:
        """Seconds of the slowest rank, in a pattern that needs no payload."""
        return self._run(pattern, _NOTHING, 1)

    def hosts(self) -> list[str]:
        """By rank."""
        return gather_hosts(self.group, self._timeout)

    def _run(self, pattern: Pattern, payload: Bytes, count: int) -> float:
        gather_json(self.group, None, self._timeout, "measuring")  # so that all begin together
        started = time.perf_counter()
        Task(self.channel, pattern(self.group, payload, count), self._timeout, "measuring").wait()
        elapsed = time.perf_counter() - started
        return float(max(gather_json(self.group, elapsed, self._timeout, "measuring"))) / count
