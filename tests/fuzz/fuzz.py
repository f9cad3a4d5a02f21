"""Reads damaged frames and messages, and counts what becomes of them.

    python tests/fuzz/fuzz.py --frames 200000 --messages 3000 --seed 1 --seconds 300

Frames go through the decoders of all backends; messages through a whole reduce, of every collective in turn. Columns:
**refused**, with an error that says so; **equal**, accepted, and nothing was different; **sound**, accepted where the
checksums had been taken away, with indices in order and in range: values that are wrong cannot be told there;
**wrong**, accepted although different, or not sound, or backends disagree; **crashed**, the process died, took far more
memory than it was given bytes, or raised something else. Exits with 1 if anything was wrong or crashed.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from decoding import try_frames
from reducing import try_messages
from tally import CRASHED, VERDICTS, Tally

from spardl.bench.table import Column, print_table

TRIALS = {"frames": try_frames, "messages": try_messages}
AT_ONCE = {"frames": 2500, "messages": 100}  # by one process, whose death is noticed
MEMORY = 4 << 30  # bytes of address space beyond what a process has when it begins
LIMIT = 600.0  # seconds for one process
TOLD_APART = {"frames": ("damage", "checksum", "reader"), "messages": ("checksum", "reader")}


def work(what: str, seed: int, count: int, limited: bool) -> None:
    """In a process of its own."""
    told = Path("/proc/self/statm")
    if limited and told.exists():
        pages = int(told.read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    json.dump(TRIALS[what](seed, count).to_json(), sys.stdout)


def run(what: str, seed: int, count: int, limited: bool) -> Tally:
    """A process that does so many, and its tally; if it died, that is what is in it."""
    tally = Tally()
    command = [sys.executable, __file__, "--work", what, "--seed", str(seed), "--count", str(count)]
    try:
        done = subprocess.run(
            command + ["--unlimited"] * (not limited), capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        tally.add("any", "any", what, CRASHED, f"seed {seed}: no end after {LIMIT:g} s")
        return tally
    if done.returncode != 0:
        tally.add("any", "any", what, CRASHED, f"seed {seed}: exit code {done.returncode}\n{done.stderr[-4000:]}")
        return tally
    tally.add_json(json.loads(done.stdout))
    return tally


def run_all(what: str, total: int, seed: int, jobs: int, seconds: float, limited: bool) -> Tally:
    """In processes of a few thousand, until all are done or the time is up."""
    tally, deadline = Tally(), time.monotonic() + seconds

    def chunks() -> Iterator[tuple[int, int]]:
        for number, begin in enumerate(range(0, total, AT_ONCE[what])):
            yield 1000 * seed + number, min(AT_ONCE[what], total - begin)

    def one(chunk: tuple[int, int]) -> Tally | None:
        return None if time.monotonic() > deadline else run(what, *chunk, limited)

    with ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(one, chunks()):
            if part is not None:
                tally.add_json(part.to_json())
    return tally


def report(what: str, title: str, tally: Tally) -> None:
    for story in tally.stories[:10]:
        print(story, file=sys.stderr)
    names = [Column(name, name) for name in TOLD_APART[what]]
    counts = [Column(name, name, "d") for name in ("tried", *VERDICTS)]
    print_table(title, [*names, *counts], list(tally.rows(TOLD_APART[what])), "passed" if tally.passed else "FAILED")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="for frames, and again for messages, at most")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--unlimited", action="store_true", help="no limit on memory, for builds that need much of it")
    parser.add_argument("--work", choices=TRIALS, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.seed, arguments.count, not arguments.unlimited)
        return 0
    passed = True
    wanted: dict[str, Any] = {"frames": arguments.frames, "messages": arguments.messages}
    for what, total in wanted.items():
        started = time.monotonic()
        tally = run_all(what, total, arguments.seed, arguments.jobs, arguments.seconds, limited=not arguments.unlimited)
        took = time.monotonic() - started
        report(what, f"{total:,} damaged {what}, seed {arguments.seed}, {took:.0f} s", tally)
        passed = passed and tally.passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
