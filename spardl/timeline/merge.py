"""From one file per rank to one for the viewer: ranks are processes there, channels and threads are threads."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_log = logging.getLogger("spardl.timeline")
_WAIT_FOR_OTHERS = 10.0  # seconds, when rank 0's process ends; a rank that was killed never finishes its file


def finished_path(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.rank{rank}")


def unfinished_path(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.rank{rank}.part")


def merge_at_exit(path: Path, ranks: int, *, in_peace: bool) -> None:
    """On rank 0: gives the others a moment to finish, if they end ``in_peace``, and takes what is there."""
    wait = _WAIT_FOR_OTHERS if in_peace else 0.0
    files = [finished_path(path, rank) for rank in range(ranks)]
    deadline = time.monotonic() + wait
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.02)
    unfinished = [rank for rank, file in enumerate(files) if not file.exists()]
    try:
        merge(path)
    except OSError as error:  # the ranks' files stay
        _log.warning("spardl: %s cannot be written; `spardl timeline %s` tries again: %s", path, path, error)
        return
    if unfinished:
        _log.warning(
            "spardl: %s: %g s after rank 0's end the files of ranks %s are not finished, or not here. "
            "`spardl timeline %s` merges anew what is there then.",
            *(path, wait, ", ".join(map(str, unfinished)), path),
        )
    else:
        for file in files:
            file.unlink()


def merge(path: Path) -> list[int]:
    """Writes ``path`` from the ranks' files beside it, and returns the ranks that it has; one rank after the other."""
    parts = _parts(path)
    if not parts:
        raise FileNotFoundError(f"there is no {finished_path(path, 0)}, nor any other rank's")
    beginning = min(part.began + part.clock_offset for part in parts)
    written = path.with_name(f"{path.name}.merging")
    try:
        _write_chrome(parts, beginning, written)
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise
    return [part.rank for part in parts]


def _write_chrome(parts: list["_Part"], beginning: int, path: Path) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [')
        separator = "\n"
        for part in parts:
            for event in part.chrome_events(beginning):
                out.write(separator + json.dumps(event))
                separator = ",\n"
        out.write("\n]}\n")


def _parts(path: Path) -> list["_Part"]:
    """Of the run that began last: files of an earlier one, on more ranks, may lie about."""
    files = [*path.parent.glob(f"{path.name}.rank*[0-9]"), *path.parent.glob(f"{path.name}.rank*[0-9].part")]
    parts = sorted((_Part.open(file) for file in files), key=lambda part: part.rank)
    latest = max(parts, key=lambda part: part.began, default=None)
    return [part for part in parts if latest is not None and part.rank < latest.ranks == part.ranks]


@dataclass(slots=True)
class _Part:
    """One rank's file."""

    file: Path
    rank: int = 0
    ranks: int = 0
    host: str = ""
    began: int = 0  # nanoseconds, like all times here
    clock_offset: int = 0
    tracks: dict[int, str] = field(default_factory=dict)

    @classmethod
    def open(cls, file: Path) -> "_Part":
        part = cls(file)
        for line in part._lines("{"):
            if "track" in line:
                part.tracks[line["track"]] = line["name"]
            elif "rank" in line:
                part.rank, part.ranks, part.host, part.began = (line[n] for n in ("rank", "ranks", "host", "began"))
            elif "clock_offset" in line:
                part.clock_offset = line["clock_offset"]
        return part

    def chrome_events(self, beginning: int) -> Iterator[dict[str, Any]]:
        """In the order of their beginnings, those that contain others first."""
        yield self._meta("process_name", 0, name=f"rank {self.rank} on {self.host}")
        yield self._meta("process_sort_index", 0, sort_index=self.rank)
        for track, name in self.tracks.items():
            yield self._meta("thread_name", track, name=name)
            yield self._meta("thread_sort_index", track, sort_index=track)
        shift = self.clock_offset - beginning
        events = list(self._lines("["))
        events.reverse()  # what contains an event was recorded after it, also where the two took equally long
        events.sort(key=lambda event: (event[3], -event[4]))
        for track, name, category, began, ended, details in events:
            yield {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": (began + shift) / 1000,  # microseconds
                "dur": (ended - began) / 1000,
                "pid": self.rank,
                "tid": track,
                "args": details,
            }

    def _meta(self, what: str, track: int, **args: Any) -> dict[str, Any]:
        return {"name": what, "ph": "M", "pid": self.rank, "tid": track, "args": args}

    def _lines(self, kind: str) -> Iterator[Any]:
        with self.file.open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith(kind) and line.endswith("\n"):  # a rank that was killed may leave half a line
                    yield json.loads(line)
