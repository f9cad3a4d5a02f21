"""What a run in virtual time was like: results, seconds, traffic, and a timeline for Perfetto."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spardl.runtime.traffic import Traffic
from spardl.timeline.recorder import Event, Recorder

TRAINING, COLLECTIVES, LEAVING, ARRIVING = range(4)
_NAMES = ("training", "collectives", "outgoing port", "incoming port")


class Log:
    """One rank's events, in memory, by a clock of nanoseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now = clock
        self.events: list[Event] = []

    def add(self, track: int, name: str, category: str, began: int, ended: int, **details: Any) -> None:
        self.events.append((track, name, category, began, ended, details))

    def working_on(self, track: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class Trace:
    """Times are virtual."""

    results: list[Any]  # by rank: what it returned; of a program, what its training did
    seconds: float  # until the last rank had ended
    rank_seconds: list[float]  # until each had
    traffic: list[Traffic]  # by rank; mail between processes included
    events: int  # that it took to find out
    hosts: tuple[int, ...]
    logs: list[Log] = field(default_factory=list, repr=False)

    def to_timeline(self, path: str | Path) -> None:
        """Writes what every rank did when, for Perfetto or chrome://tracing."""
        if not self.logs:
            raise ValueError("to_timeline: nothing was recorded; run virtual(..., record=True)")
        began = time.time_ns()  # what lies about from an earlier run is older
        for rank in reversed(range(len(self.logs))):  # rank 0 merges all files when it closes its own
            self._write(str(path), rank, began)

    def _write(self, path: str, rank: int, began: int) -> None:
        recorder = Recorder(path, rank, len(self.logs), f"host {self.hosts[rank]}", clock=lambda: began)
        tracks = [0, *map(recorder.new_track, _NAMES[1:])]  # a recorder has a track for training
        for track, name, category, start, end, details in self.logs[rank].events:
            recorder.add(tracks[track], name, category, began + start, began + end, **details)
        recorder.close()
