"""`reduce()` against a bare `MPI_Allreduce` of the same vector, all ranks on this machine, launch after launch.

    python benchmarks/allreduce.py
    python benchmarks/allreduce.py --setting 4:1000000 --launches 3 --json allreduce.json

Every launch is a `spardl bench`, in which the two take turns; its ratio is that of the medians. On a machine that is
shared with others one launch says little, so the settings take turns, too, and the table has the range of the ratios.
GB/s: bytes of the dense vector over the time of the slowest rank; streaming: what `np.add` reads and writes, alone.
Targets are set for two cores. Exits with 1 if a result is wrong, with 2 if a launch fails.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import arguments
import numpy as np
from one_host import PYTHON, OneHost
from targets import Target, at_most

from spardl import kernels
from spardl.bench import record, timing
from spardl.bench.progress import shown
from spardl.bench.sizes import SIZES, parse_size
from spardl.bench.table import Column, Row, print_table

LIMIT = 600  # seconds, of one launch


@dataclass(frozen=True, slots=True)
class Setting:
    """So many ranks reduce so many elements."""

    ranks: int
    size: int
    target: Target | None = None

    @classmethod
    def parse(cls, text: str) -> "Setting":
        ranks, _, size = text.partition(":")
        return cls(int(ranks), parse_size(size))


SETTINGS = (Setting(2, 10_000_000, at_most(0.45, 0.25)), Setting(6, SIZES["vgg16"], at_most(0.2, 0.12)))


def launch(setting: Setting, density: float, repeats: int) -> tuple[Row, Row]:
    """The rows of `spardl bench`: the dense all-reduce's and ours."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "bench.json"
        flags = [f"--size={setting.size}", f"--density={density}", f"--repeats={repeats}", f"--output={output}"]
        command = [str(PYTHON), "-m", "mpi4py", "-m", "spardl", "bench", "--algorithm=spardl", *flags]
        done = OneHost(setting.ranks, quiet=True).run(command, timeout=LIMIT)
        if not output.exists():
            print(done.stdout, file=sys.stderr)
            raise SystemExit(2)
        dense, ours = json.loads(output.read_text())["rows"]
        return dense, ours


def told(setting: Setting, launches: list[tuple[Row, Row]]) -> Row:
    ratios = [ours["ratio"] for _, ours in launches]
    target = setting.target
    return {
        "ranks": setting.ranks,
        "size": setting.size,
        "launches": len(launches),
        "least_ms": 1e3 * min(min(ours["seconds"]) for _, ours in launches),
        "sparse_ms": median(ours["time_ms"] for _, ours in launches),
        "dense_ms": median(dense["time_ms"] for dense, _ in launches),
        "gb_per_s": median(ours["gb_per_s"] for _, ours in launches),
        "dense_gb_per_s": median(dense["gb_per_s"] for dense, _ in launches),
        "least": min(ratios),
        "ratio": median(ratios),
        "most": max(ratios),
        "bytes_per_dense": launches[-1][1]["bytes_per_dense"],
        "target": None if target is None else str(target),
        "verdict": None if target is None else target.verdict(median(ratios)),
        "wrong": sum(ours["wrong"] for _, ours in launches),
        "ratios": ratios,
    }


COLUMNS = (
    Column("ranks", "ranks", "d"),
    Column("n", "size", ",d"),
    Column("launches", "launches", "d"),
    Column("reduce() min ms", "least_ms", ".1f"),
    Column("median", "sparse_ms", ".1f"),
    Column("GB/s", "gb_per_s", ".2f"),
    Column("MPI_Allreduce ms", "dense_ms", ".1f"),
    Column("GB/s", "dense_gb_per_s", ".2f"),
    Column("streaming", "streaming_gb_per_s", ".1f"),
    Column("ratio: least", "least", ".3f"),
    Column("median", "ratio", ".3f"),
    Column("most", "most", ".3f"),
    Column("bytes / dense", "bytes_per_dense", ".4f"),
    Column("target", "target"),
    Column("reached", "verdict"),
    Column("#wrong", "wrong", "d"),
)


def streaming_rate() -> float:
    """GB/s of one process that adds a vector to another, alone."""
    one, other = np.ones((2, SIZES["vgg16"]), np.float32)
    seconds = timing.timed(lambda: np.add(one, other, out=one), repeats=15, warmup=3)
    return 3 * one.nbytes / median(seconds) / 1e9


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument(
        "--setting",
        dest="settings",
        type=Setting.parse,
        action="append",
        metavar="RANKS:SIZE",
        help="may be given several times (default: 2:10000000 and 6:vgg16, which have targets)",
    )
    flags.add_argument("--density", type=float, default=0.01, help="share of entries to keep (default: %(default)s)")
    flags.add_argument("--launches", type=int, default=7, help="of every setting (default: %(default)s)")
    flags.add_argument("--repeats", type=int, default=10, help="timed runs in every launch (default: %(default)s)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write what was measured to this file")
    return flags.parse_args()


def main() -> int:
    args = parse_args()
    settings = args.settings or SETTINGS
    results: dict[Setting, list[tuple[Row, Row]]] = {setting: [] for setting in settings}
    with shown() as tell:
        for number in range(args.launches):
            for setting, launches in results.items():
                launches.append(launch(setting, args.density, args.repeats))
                tell("launches of every setting", number, args.launches)
    streaming = {"streaming_gb_per_s": streaming_rate()}
    rows = [told(setting, launches) | streaming for setting, launches in results.items()]
    facts = record.machine(kernels.load("auto").name)
    print_table(f"density {args.density:g}", COLUMNS, rows, caption=record.describe(facts))
    arguments.write_json(args, facts, rows)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
