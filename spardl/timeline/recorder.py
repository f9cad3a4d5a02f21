"""One rank's events, on their way to its file.

A file has one JSON value per line: objects that explain the rest (``rank``, ``track``, ``clock_offset``), and arrays,
which are events: track, name, category, beginning and end in nanoseconds, details. It is written every second, so that
a rank that is killed leaves what it did before.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from spardl.timeline.merge import finished_path, merge_at_exit, unfinished_path

Event: TypeAlias = tuple[int, str, str, int, int, dict[str, Any]]

_log = logging.getLogger("spardl.timeline")
_MOST_EVENTS = 200_000  # some 25 MB; viewers get slow beyond
_CHUNK = 1000  # events in memory
_FLUSH_EVERY = 10**9  # nanoseconds


class Records(Protocol):
    """Whatever collectives leave their trace in."""

    def now(self) -> int: ...

    def add(self, track: int, name: str, category: str, began: int, ended: int, **details: Any) -> None: ...

    def working_on(self, track: int) -> contextlib.AbstractContextManager[None]: ...


class Recorder:
    """Any thread may add events. Those of one track have to nest; a thread, and a channel, has a track of its own."""

    def __init__(self, path: str, rank: int, ranks: int, host: str, clock: Callable[[], int] | None = None) -> None:
        """``clock``: of nanoseconds, instead of this machine's."""
        self._path, self._rank, self._ranks = Path(path), rank, ranks
        self._clock = clock or time.perf_counter_ns
        self._to_wall_clock = 0 if clock else time.time_ns() - time.perf_counter_ns()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._recorded = self._left_out = 0
        self._broken = False
        self._flush_at = 0
        self._threads: dict[int, int] = {}
        self._tracks = 0
        self._active = threading.local()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        finished_path(self._path, rank).unlink(missing_ok=True)  # of an earlier run
        self._file = unfinished_path(self._path, rank).open("w", encoding="utf-8")
        self._write({"rank": rank, "ranks": ranks, "host": host, "began": self.now()})
        self._threads[threading.main_thread().ident or 0] = self.new_track("training")

    def now(self) -> int:
        """Nanoseconds; about the time of day, but never set back."""
        return self._clock() + self._to_wall_clock

    def set_clock_offset(self, nanoseconds: int) -> None:
        """What to add to this rank's times to get rank 0's."""
        self._write({"clock_offset": nanoseconds})

    def new_track(self, name: str) -> int:
        with self._lock:
            track, self._tracks = self._tracks, self._tracks + 1
        self._write({"track": track, "name": name})
        return track

    # -- events --------------------------------------------------------------------------------------------------------

    def add(self, track: int, name: str, category: str, began: int, ended: int, **details: Any) -> None:
        if self._recorded >= _MOST_EVENTS:
            self._left_out += 1
            return
        self._recorded += 1
        self._events.append((track, name, category, began, ended, details))
        if len(self._events) >= _CHUNK or ended > self._flush_at:
            self._flush_at = ended + _FLUSH_EVERY
            self._flush()

    @contextlib.contextmanager
    def span(self, name: str, details: dict[str, Any]) -> Iterator[None]:
        """What this thread does meanwhile, on its own track."""
        track, began = self._own_track(), self.now()
        try:
            yield
        finally:
            self.add(track, name, "training", began, self.now(), **details)

    @contextlib.contextmanager
    def working_on(self, track: int) -> Iterator[None]:
        """Kernels that this thread calls meanwhile are on that track."""
        self._active.track = track
        try:
            yield
        finally:
            self._active.track = None

    def active_track(self) -> int:
        track: int | None = getattr(self._active, "track", None)
        return self._own_track() if track is None else track

    def _own_track(self) -> int:
        thread = threading.get_ident()
        if thread not in self._threads:
            self._threads[thread] = self.new_track(threading.current_thread().name)
        return self._threads[thread]

    # -- the file ------------------------------------------------------------------------------------------------------

    def close(self, *, in_peace: bool = True) -> None:
        """At the process's end: no more events. Sends nothing, for something may have gone wrong in MPI.

        Rank 0 gives the others time to do the same, unless they do not end ``in_peace``.
        """
        if self._file.closed:
            return
        self._flush()
        for last in (self._file.close, self._rename):
            try:
                last()
            except OSError as error:
                self._give_up(error)
        if self._left_out:
            _log.warning("spardl: rank %d's timeline is full: its first %d events", self._rank, _MOST_EVENTS)
        if self._rank == 0:
            merge_at_exit(self._path, self._ranks, in_peace=in_peace)

    def _rename(self) -> None:
        unfinished_path(self._path, self._rank).rename(finished_path(self._path, self._rank))

    def _flush(self) -> None:
        with self._lock:
            events, self._events = self._events, []
        self._write(*events)

    def _write(self, *lines: Any) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        with self._lock:
            if self._broken:
                return
            try:
                self._file.write(text)
                self._file.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Training goes on without a timeline; the file keeps what it has."""
        if not self._broken:
            _log.warning("spardl: rank %d's timeline ends here, training goes on: %s", self._rank, error)
        self._broken = True
