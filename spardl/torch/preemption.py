"""Leaving in time: a signal to any rank, and all ranks know after the same step that they have to save and go."""

import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from spardl.agreement import open_channel
from spardl.collectives.bruck import bruck
from spardl.effects import Bytes
from spardl.runtime.group import CommLike, resolve
from spardl.runtime.limit import time_limit
from spardl.runtime.mpi import Task


class StopSignals:
    """Catches the signals with which a cluster warns a job, and tells all ranks of them after the same step.

    ::

        with spt.StopSignals() as stop:
            for batch in batches:
                ...  # backward(), step()
                if stop.asked():
                    ...  # save
                    sys.exit(os.EX_TEMPFAIL)

    Every rank calls ``asked`` once a step. Steps do not wait for it: the ranks' answers travel one round of messages a
    step, so a signal is known ⌈log₂P⌉ + 1 steps after it came, or up to twice as many.

    Parameters
    ----------
    comm: of the ranks that train; COMM_WORLD if not given.
    signals: what to catch; one rank that gets one is enough. Their old handlers return when the block is left.
    timeout: seconds to wait for a peer.
    """

    def __init__(
        self,
        comm: CommLike | None = None,
        signals: Sequence[signal.Signals] = (signal.SIGUSR1, signal.SIGTERM),
        timeout: float | None = None,
    ) -> None:
        self._timeout = time_limit(timeout)
        self._group = resolve(MPI.COMM_WORLD if comm is None else comm, self._timeout)
        self._channel = open_channel(self._group, dict, self._timeout, "StopSignals")
        self._signals = signals
        self._replaced: dict[signal.Signals, Any] = {}
        self._caught = self._known = False
        self._task: Task[list[Bytes]] | None = None
        self._calls_left = 0

    def __enter__(self) -> "StopSignals":
        for number in self._signals:
            self._replaced[number] = signal.signal(number, self._catch)
        # Whoever has much to do before this point may have blocked them, so as not to be ended by one.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._task is not None:
            # All ranks leave after the same step, with the same question under way; unless something went wrong.
            self._task.wait() if kind is None else self._task.call_off()
            self._task = None
        for number, handler in self._replaced.items():
            signal.signal(number, handler)
        self._replaced = {}

    def asked(self) -> bool:
        """Whether any rank was asked to stop: the same answer on all ranks, and once it is yes it stays so."""
        if self._known:
            return True
        if self._task is None:
            frame = np.array([self._caught], np.uint8)
            gather = bruck(range(self._group.size), self._group.me, frame)
            self._task = Task(self._channel, gather, self._timeout, "asking whether to stop")
            self._calls_left = (self._group.size - 1).bit_length()
        if self._calls_left > 0:
            self._calls_left -= 1
            self._task.advance()
            return False
        self._known = any(answer[0] for answer in self._task.wait())
        self._task = None
        return self._known

    def _catch(self, _number: int, _frame: FrameType | None) -> None:
        self._caught = True
