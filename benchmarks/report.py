"""What the benchmarks share: flags, timing, tables, JSON. Not run by itself."""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spardl import kernels

VGG16 = 14_728_266  # gradients of VGG-16 with ten classes
Row = dict[str, Any]


def parser(description: str | None) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    flags = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flags.add_argument(
        "--size", type=int, default=VGG16, help="elements of the gradient (default: %(default)s, VGG-16)"
    )
    flags.add_argument("--density", type=float, default=0.01, help="share of them to keep (default: %(default)s)")
    flags.add_argument("--repeats", type=int, default=15, help="timed runs of everything (default: %(default)s)")
    flags.add_argument("--warmup", type=int, default=5, help="runs before those, not timed (default: %(default)s)")
    flags.add_argument("--backend", default="auto", choices=("auto", *kernels.BACKENDS), help="kernels (default: auto)")
    flags.add_argument("--seed", type=int, default=0, help="of the random gradients (default: %(default)s)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write what was measured to this file")
    return flags


# -- timing ------------------------------------------------------------------------------------------------------------


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to time; ``prepare`` is called before every run and not timed."""

    run: Callable[[], object]
    prepare: Callable[[], object] = _nothing


def interleaved(
    candidates: Sequence[Candidate],
    repeats: int,
    warmup: int,
    *,
    before_each: Callable[[], object] = _nothing,
    label: str = "",
) -> list[list[float]]:
    """Seconds of every repeat of every candidate, taking turns, so that a drifting machine is unfair to none of them.

    All are prepared before the first one's turn: whatever preparing leaves in the cache is gone when it counts.
    A ``label`` asks for a progress bar.
    """
    seconds: list[list[float]] = [[] for _ in candidates]
    with _progress(visible=bool(label)) as progress:
        bar = progress.add_task(label, total=warmup + repeats)
        for turn in range(-warmup, repeats):
            for candidate in candidates:
                candidate.prepare()
            for candidate, record in zip(candidates, seconds, strict=True):
                before_each()
                started = time.perf_counter()
                candidate.run()
                elapsed = time.perf_counter() - started
                if turn >= 0:
                    record.append(elapsed)
            progress.update(bar, advance=1, refresh=True)
    return seconds


def timed(function: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Seconds of every repeat of one function."""
    return interleaved([Candidate(function)], repeats, warmup)[0]


def times(seconds: Sequence[float]) -> Row:
    """The columns that every timed row has."""
    return {"min_ms": 1e3 * min(seconds), "median_ms": 1e3 * float(np.median(seconds))}


def ratios(seconds: Sequence[float], to: Sequence[float]) -> Row:
    """Of the medians and of the minima. Where the two differ much, the machine was busy: believe neither."""
    return {"ratio": float(np.median(seconds) / np.median(to)), "ratio_of_minima": min(seconds) / min(to)}


# -- showing -----------------------------------------------------------------------------------------------------------


def _progress(visible: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn between the runs only: a refreshing thread would take its share of the time measured.
    return Progress(*columns, console=_console(stderr=True), auto_refresh=False, disable=not visible)


def _console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    # Into a file, or through mpiexec, rich would assume 80 columns and break every line.
    return console if console.is_terminal else Console(stderr=stderr, width=180)


class Column(NamedTuple):
    """A table column: its title, the row's entry, and how to write that; missing entries stay blank."""

    title: str
    key: str
    spec: str = ""


def print_table(title: str, columns: Sequence[Column], rows: Sequence[Row], caption: str = "") -> None:
    """Columns with a format spec hold numbers and are aligned to the right."""
    table = Table()
    for column in columns:
        table.add_column(column.title, justify="right" if column.spec else "left")
    for row in rows:
        cells = ((row.get(column.key), column.spec) for column in columns)
        table.add_row(*("" if cell is None else f"{cell:{spec}}" for cell, spec in cells))
    console = _console()
    console.print(title, highlight=False)  # not the table's own title, which would be wrapped to the table's width
    console.print(table)
    console.print(caption, highlight=False)


def machine(backend: str) -> Row:
    """Facts without which a time means little."""
    facts: Row = {
        "cpu": platform.machine(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "backend": backend,
    }
    if backend == "native":
        from spardl.kernels import _native  # not there at all if spardl was installed without a compiler

        facts["simd"] = _native.simd()
    return facts


def describe(facts: Row) -> str:
    """The facts in one line, for a table's title."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def write_json(args: argparse.Namespace, facts: Row, rows: Sequence[Row], launcher: str = "", **more: Any) -> None:
    """Everything measured, to ``--json``, if given. ``launcher`` is what stands before the command, e.g. mpiexec."""
    if args.json is None:
        return
    parameters = {name: value for name, value in vars(args).items() if name != "json"} | more
    record = {
        "command": f"{launcher} python {shlex.join(sys.argv)}".strip(),
        "machine": facts,
        "parameters": parameters,
        "rows": list(rows),
    }
    args.json.write_text(json.dumps(record, indent=2, default=str) + "\n")
