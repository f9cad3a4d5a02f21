"""All algorithms in many settings on the emulated cluster: tables, JSON and pictures in one folder.

    python benchmarks/suite.py --output results
    python benchmarks/suite.py --output results --short     # what `make bench` runs, a few minutes

For every number of hosts and rate: a cluster is brought up, its messages and kernels are measured, and all algorithms
run at all sizes and densities, checked. Then what is asked of the whole: how much faster SparDL is than dense, whether
it beats the sparse rivals, how far the planner's number of teams is from the best, how good the predictions are. Where
there is no root or no network namespace, the ranks share one host and talk through memory instead; it says so.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from cluster import Cluster, ClusterError
from one_host import PYTHON, OneHost

from spardl.bench.rows import COLUMNS as ALGORITHM_COLUMNS
from spardl.bench.rows import LEGEND
from spardl.bench.table import Column, Row, print_table
from spardl.schedule import team_counts

LIMIT = 1800  # seconds, of one command


@dataclass(frozen=True, slots=True)
class Stage:
    """One cluster, and what is reduced on it."""

    hosts: int
    rate: str
    runs: tuple[tuple[str, float], ...]  # size and density
    algorithms: tuple[str, ...] = ("all",)
    repeats: int = 10
    max_seconds: float = 8.0

    def contenders(self) -> list[str]:
        """``spardl*`` is SparDL with every number of teams."""
        teams = [f"spardl:{d}" for d in team_counts(self.hosts)]
        return [name for listed in self.algorithms for name in (teams if listed == "spardl*" else [listed])]

    @property
    def name(self) -> str:
        return f"{self.hosts}-hosts-{self.rate}"


FULL = (
    Stage(4, "1gbit", (("vgg16", 0.01), ("resnet20", 0.01))),
    Stage(5, "1gbit", (("vgg16", 0.01), ("resnet20", 0.01))),
    Stage(6, "1gbit", (("vgg16", 0.01), ("vgg16", 0.001), ("resnet20", 0.01), ("resnet20", 0.001))),
    Stage(8, "1gbit", (("vgg16", 0.01), ("resnet20", 0.01))),
    Stage(
        6, "100mbit", (("vgg16", 0.01),), algorithms=("spardl*", "topk_a", "topk_dsa", "gtopk", "oktopk", "dense_mpi")
    ),
    Stage(6, "100mbit", (("resnet20", 0.01),)),
    Stage(8, "100mbit", (("resnet20", 0.01),)),
    Stage(5, "100mbit", (("resnet20", 0.01),)),
    Stage(4, "100mbit", (("resnet20", 0.001),)),
)
SHORT = (
    Stage(4, "1gbit", (("resnet20", 0.01), ("resnet20", 0.001)), repeats=8, max_seconds=5.0),
    Stage(6, "1gbit", (("resnet20", 0.01), ("resnet20", 0.001), ("vgg16", 0.01)), repeats=5, max_seconds=5.0),
)


class Runs(Protocol):
    """What a Cluster and this machine alone can do."""

    def run(self, command: list[str], timeout: float) -> "subprocess.CompletedProcess[str]": ...


@contextlib.contextmanager
def hosts(stage: Stage, emulate: bool) -> Iterator[Runs]:
    if emulate:
        with Cluster(stage.hosts, stage.rate) as cluster:
            yield cluster
    else:
        yield OneHost(stage.hosts)


def can_emulate() -> bool:
    try:
        with Cluster(2):
            return True
    except ClusterError as error:
        print(f"No emulated cluster: {error}\nAll ranks run on this host and talk through memory.\n", flush=True)
        return False


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(stage: Stage, folder: Path, emulate: bool) -> list[Path]:
    """Runs one stage; the files that `spardl bench` wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    spardl = [str(PYTHON), "-m", "mpi4py", "-m", "spardl"]
    profile = folder / "profile.json"
    label = stage.rate.replace("gbit", " Gbit/s").replace("mbit", " Mbit/s") if emulate else "one host"
    results = []
    with hosts(stage, emulate) as where:
        run(where, [*spardl, "cost", "measure", "--short", "--output", str(profile)])
        for size, density in stage.runs:
            output = folder / f"{size}-{density:g}.json"
            flags = [f"--size={size}", f"--density={density}", f"--profile={profile}", f"--output={output}"]
            flags += [f"--repeats={stage.repeats}", f"--max-seconds={stage.max_seconds}", f"--label={label}"]
            run(where, [*spardl, "bench", *flags, *(f"--algorithm={name}" for name in stage.contenders())])
            results.append(output)
    return results


def run(where: Runs, command: list[str]) -> None:
    done = where.run(command, timeout=LIMIT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")


# -- what it says ------------------------------------------------------------------------------------------------------

DENSE = ("dense_ring", "dense_rabenseifner", "dense_recursive_doubling", "dense_mpi", "MPI_Allreduce")


def verdict(told: dict[str, Any]) -> Row:
    """One setting's: SparDL's best number of teams against everything else, and the planner's against it."""
    rows = told["rows"]
    ours = {row["teams"]: row for row in rows if row["algorithm"] == "spardl"}
    best = min(ours.values(), key=lambda row: float(row["time_ms"]))
    chosen = min(ours.values(), key=lambda row: float(row["predicted_ms"]))
    rivals = [row for row in rows if row["algorithm"] not in (*DENSE, "spardl")]
    dense = next(row for row in rows if row["algorithm"] == "dense_mpi")
    rival = min(rivals, key=lambda row: float(row["time_ms"]))
    errors = [abs(row["error_percent"]) for row in rows if "error_percent" in row]
    return {
        "network": told["label"],
        "ranks": told["ranks"],
        "size": rows[0]["size"],
        "density": rows[0]["density"],
        "spardl_ms": best["time_ms"],
        "teams": best["teams"],
        "dense_ms": dense["time_ms"],
        "speedup": dense["time_ms"] / best["time_ms"],
        "rival": rival["algorithm"],
        "rival_ratio": rival["time_ms"] / best["time_ms"],
        "planned": chosen["teams"],
        "planned_over_best": 100 * (chosen["time_ms"] / best["time_ms"] - 1),
        "one_team_over_two": ours[1]["time_ms"] / ours[2]["time_ms"] if 2 in ours else None,
        "median_error": median(errors),
        "wrong": sum(row.get("wrong", 0) for row in rows),
    }


COLUMNS = (
    Column("network", "network"),
    Column("P", "ranks", "d"),
    Column("n", "size", ",d"),
    Column("density", "density", "g"),
    Column("SparDL ms", "spardl_ms", ".2f"),
    Column("teams", "teams", "d"),
    Column("dense_mpi ms", "dense_ms", ".1f"),
    Column("× faster", "speedup", ".1f"),
    Column("best rival", "rival"),
    Column("its time / ours", "rival_ratio", ".2f"),
    Column("planned teams", "planned", "d"),
    Column("slower than best, %", "planned_over_best", ".0f"),
    Column("1 team / 2 teams", "one_team_over_two", ".2f"),
    Column("median error, %", "median_error", ".0f"),
    Column("#wrong", "wrong", "d"),
)


def summarize(results: list[Path], folder: Path) -> int:
    told = [json.loads(path.read_text()) for path in results]
    rows = [verdict(one) for one in told]
    errors = [abs(row["error_percent"]) for one in told for row in one["rows"] if "error_percent" in row]
    near = sum(row["planned_over_best"] <= 10 for row in rows)
    text = (
        f"predicted against measured: median error {median(errors):.0f} % of {len(errors)} times; "
        f"the planned number of teams is the best, or within 10 % of it, in {near} of {len(rows)} settings"
    )
    title = "SparDL's best number of teams in every setting"
    print_table(title, COLUMNS, rows, caption=text)
    with (folder / "tables.txt").open("w") as file:
        for one in told:
            where = f"{one['label']}, {one['ranks']} ranks, n = {one['rows'][0]['size']:,}, k = {one['rows'][0]['k']:,}"
            print_table(where, ALGORITHM_COLUMNS, one["rows"], caption=LEGEND, file=file)
        print_table(title, COLUMNS, rows, caption=text, file=file)
    summary = {"settings": rows, "median_error_percent": median(errors), "planned_within_10_percent": near}
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return 1 if any(row["wrong"] for row in rows) else 0


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--output", type=Path, default=Path("bench-results"), help="a folder (default: %(default)s)")
    flags.add_argument("--short", action="store_true", help="two clusters and few repeats")
    flags.add_argument("--only", help="stages whose name contains this, e.g. 6-hosts")
    flags.add_argument("--summarize", action="store_true", help="measure nothing; sum up what the folder has")
    return flags.parse_args()


def main() -> int:
    args = parse_args()
    started = time.monotonic()
    stages = [stage for stage in (SHORT if args.short else FULL) if not args.only or args.only in stage.name]
    if args.summarize:
        results = sorted(path for path in args.output.glob("*/*.json") if path.name != "profile.json")
    else:
        emulate = can_emulate()
        results = [path for stage in stages for path in measure(stage, args.output / stage.name, emulate)]
    if not results:
        print(f"nothing to sum up in {args.output}")
        return 2
    plots = [str(PYTHON), "-m", "spardl", "bench", "plot", *map(str, results), "--output", str(args.output)]
    subprocess.run(plots, check=True)
    code = summarize(results, args.output)
    print(f"written to {args.output} in {time.monotonic() - started:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
