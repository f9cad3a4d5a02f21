"""How long RNA waits for the first of q random nodes: the probe experiment of its paper (figure 10), simulated.

    python benchmarks/probes.py --nodes 100 --rounds 10000 --json probes.json --plot probes.png

In every round each node takes a time of its own, uniform from 10 to 50 ms; q different nodes are probed, and the round
waits for the fastest of them. Rounds start afresh, messages take no time, and a larger q probes the nodes of a smaller
one and more, so that the rows differ by the number of probes and by nothing else. No machine is timed: the same seed
gives the same figures everywhere.

"expected" is the median by theory, 10 + 40 (1 − 2^(−1/q)) ms. "saves" is what the last of the probes takes off the
median, and so the most that it may cost in messages before it does harm. The paper tells of medians of 28 ms with one
probe and 12 ms with two, in 100 rounds: the first is within chance of what is expected here, the second is not.
"""

import argparse
import importlib.util
from pathlib import Path

import arguments
import numpy as np
import numpy.typing as npt

from spardl.bench import record
from spardl.bench.figure import new_figure, save
from spardl.bench.table import Column, Row, print_table
from spardl.protocols.rna.probing import response_seconds

MOST = 5  # probes
FASTEST, SLOWEST = 0.010, 0.050  # seconds


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flags.add_argument("--nodes", type=int, default=100, help="of the simulated cluster (default: %(default)s)")
    flags.add_argument("--rounds", type=int, default=10_000, help="default: %(default)s")
    flags.add_argument("--seed", type=int, default=0, help="of times and probes (default: %(default)s)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    flags.add_argument("--plot", type=Path, metavar="PATH", help="draw boxes of the response times to this file")
    args = flags.parse_args()
    if args.plot is not None and importlib.util.find_spec("matplotlib") is None:
        flags.error("--plot needs matplotlib: pip install matplotlib")
    if args.nodes < MOST:
        flags.error(f"--nodes {args.nodes}: expected at least as many as are probed, {MOST}")
    if args.rounds < 1 or args.seed < 0:
        flags.error(f"expected --rounds of at least 1 and a --seed of at least 0, got {args.rounds} and {args.seed}")
    return args


def simulate(nodes: int, rounds: int, seed: int) -> npt.NDArray[np.float64]:
    """Milliseconds until the first answer, by round and number of probes."""
    ready = np.random.default_rng(seed).uniform(FASTEST, SLOWEST, (rounds, nodes))
    return 1e3 * response_seconds(ready, MOST, seed)


# -- showing -----------------------------------------------------------------------------------------------------------

PERCENTILES = {"p5_ms": 5, "quartile1_ms": 25, "median_ms": 50, "quartile3_ms": 75, "p95_ms": 95}

COLUMNS = (
    Column("probes", "probes", "d"),
    Column("median ms", "median_ms", ".1f"),
    Column("expected", "expected_ms", ".1f"),
    Column("25 %", "quartile1_ms", ".1f"),
    Column("75 %", "quartile3_ms", ".1f"),
    Column("95 %", "p95_ms", ".1f"),
    Column("mean", "mean_ms", ".1f"),
    Column("median / one probe's", "ratio_to_one", ".2f"),
    Column("median / one fewer", "ratio_to_one_fewer", ".2f"),
    Column("saves ms", "saves_ms", ".1f"),
)


def summarise(responses: npt.NDArray[np.float64]) -> list[Row]:
    """A row per number of probes."""
    medians = np.median(responses, axis=0)
    rows: list[Row] = []
    for index, column in enumerate(responses.T):
        q = index + 1
        row: Row = {"probes": q, "expected_ms": 1e3 * (FASTEST + (SLOWEST - FASTEST) * (1 - 2 ** (-1 / q)))}
        row |= {key: float(np.percentile(column, percent)) for key, percent in PERCENTILES.items()}
        row |= {"mean_ms": float(column.mean()), "ratio_to_one": float(medians[index] / medians[0])}
        if index > 0:
            row["ratio_to_one_fewer"] = float(medians[index] / medians[index - 1])
            row["saves_ms"] = float(medians[index - 1] - medians[index])
        rows.append(row)
    return rows


def draw(path: Path, rows: list[Row], title: str) -> None:
    """Boxes from quartile to quartile, whiskers from the 5th to the 95th percentile, as in the paper's figure."""
    names = dict(zip(("whislo", "q1", "med", "q3", "whishi"), PERCENTILES, strict=True))
    boxes = [{name: row[key] for name, key in names.items()} | {"label": str(row["probes"])} for row in rows]
    figure = new_figure(6.5, 4.2)
    axis = figure.subplots()
    axis.bxp(boxes, showfliers=False, widths=0.5, medianprops={"linewidth": 2})
    for row in rows:
        axis.annotate(f"{row['median_ms']:.1f}", (row["probes"] + 0.28, row["median_ms"]), va="center")
    axis.set(xlabel="probes", ylabel="response time (ms)", xlim=(0.5, len(rows) + 0.7), ylim=(0, None))
    axis.grid(axis="y", alpha=0.3)
    figure.suptitle(title)
    save(figure, path)


def main() -> None:
    args = parse_args()
    rows = summarise(simulate(args.nodes, args.rounds, args.seed))
    facts = {"numpy": np.__version__}  # all that the figures could depend on
    title = f"response time of the first of q probed nodes: {args.nodes:,} nodes, {args.rounds:,} rounds"
    print_table(title, COLUMNS, rows, caption=record.describe(facts))
    arguments.write_json(args, facts, rows)
    if args.plot is not None:
        draw(args.plot, rows, title)


if __name__ == "__main__":
    main()
