"""Virtual time put to the test: how large, how fast, and whether it says what Table 1, the cost model and clusters say.

    python benchmarks/virtual.py                                # reduce, table, rna and ranks, one after the other
    python benchmarks/virtual.py reduce --ranks 4096            # one SparDL reduce: seconds and memory of the simulator
    python benchmarks/virtual.py table --ranks 4096             # the paper's Table 1, from makespans
    python benchmarks/virtual.py rna --ranks 1024 --rounds 200  # RNA with uneven ranks
    python benchmarks/virtual.py ranks --plot docs/virtual.png  # time against P
    python benchmarks/virtual.py preduce                        # Partial Reduce beside its paper's Table 1
    python benchmarks/virtual.py hop --plot docs/hop.png        # Hop on the cluster of its paper
    python benchmarks/virtual.py suite --results bench-results  # against what benchmarks/suite.py has measured

Only sizes are sent, but by RNA, which sums eight numbers. Where every rank sends to every other, as in TopkDSA and
Ok-Topk, there are P² messages: the table and the plot stop at --pairs ranks for these.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import arguments
from targets import at_most
from virtual_hop import HOP_COLUMNS, STEP, draw_hop, hop_caption, hop_rows
from virtual_preduce import JITTER, PREDUCE_CAPTION, PREDUCE_COLUMNS, preduce_rows
from virtual_rna import rna_programs
from virtual_suite import SUITE_COLUMNS, compare

from spardl import kernels, virtual
from spardl.bench import record
from spardl.bench.plot import RANKS, draw_times
from spardl.bench.results import Measurement
from spardl.bench.results import Setting as Where
from spardl.bench.sizes import SIZES
from spardl.bench.table import Column, Row, print_table
from spardl.cost.kernels import kernel_costs
from spardl.cost.plan import rank_all
from spardl.cost.profile import Line, Profile
from spardl.cost.sized import sized
from spardl.cost.table import TABLE_1, Published, cost
from spardl.cost.traffic import LEAST, MOST, Setting
from spardl.runtime.network import Network, Port, cluster

RATE, LATENCY, OVERHEAD = "1gbit", "50us", "5us"
LABEL = f"{RATE}, {LATENCY} latency, {OVERHEAD} a message"


def seconds_and_memory() -> tuple[float, float]:
    """Of this process: the time, and the most gigabytes it has had."""
    return time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def gamma(args: argparse.Namespace) -> dict[str, float]:
    """What kernels cost here, or where ``--profile`` was measured."""
    return Profile.load(args.profile).gamma if args.profile else kernel_costs(kernels.load())


def network(ranks: int) -> Network:
    return cluster(ranks, RATE, LATENCY, overhead=OVERHEAD)


# -- one reduce --------------------------------------------------------------------------------------------------------

REDUCE_COLUMNS = (
    Column("P", "ranks", "d"),
    Column("teams", "teams", "d"),
    Column("virtual ms", "virtual_ms", ".2f"),
    Column("events", "events", ",d"),
    Column("simulated in s", "seconds", ".1f"),
    Column("target", "target"),
    Column("reached", "verdict"),
    Column("GB", "gigabytes", ".2f"),
    Column("target ", "memory_target"),
    Column("reached ", "memory_verdict"),
)


def reduce(args: argparse.Namespace) -> Iterator[Row]:
    time_target, memory_target = at_most(60, 60), at_most(6, 6)
    costs = gamma(args)
    for teams in (1, 64):
        setting = Setting(args.ranks, args.size, args.k, teams)
        began, _ = seconds_and_memory()
        trace = virtual(sized("spardl", setting, costs), network=network(args.ranks))
        ended, gigabytes = seconds_and_memory()
        yield {
            **{"ranks": args.ranks, "teams": teams, "virtual_ms": 1e3 * trace.seconds, "events": trace.events},
            **{"seconds": ended - began, "target": time_target, "verdict": time_target.verdict(ended - began)},
            **{"gigabytes": gigabytes, "memory_target": memory_target},
            "memory_verdict": memory_target.verdict(gigabytes),
        }


# -- the paper's Table 1 -----------------------------------------------------------------------------------------------

TABLE_COLUMNS = (
    Column("algorithm", "name"),
    Column("P", "ranks", "d"),
    Column("teams", "teams", "d"),
    Column("gradients", "gradients"),
    Column("rounds", "rounds", "d"),
    Column("makespan at α = 1, β = 0", "alpha", ".4f"),
    Column("volume / k", "volume", ".4f"),
    Column("makespan / k at α = 0, β = 1", "beta", ".4f"),
    Column("equal", "equal"),
    Column("remark", "remark"),
)
TABLE_CAPTION = (
    "gradients: those that lead to the least or the most traffic. late: where rank 0 has all entries to even out, the "
    "others are ahead of who gets\nits share last, and their messages keep its port busy; the formula sums up the "
    "rounds."
)
K = 2**30  # large, so that envelopes do not count, and divided by all numbers of blocks


def table(args: argparse.Namespace) -> Iterator[Row]:
    for row in TABLE_1:
        ranks = min(args.ranks, args.pairs) if row.algorithm in ("topk_dsa", "oktopk") else args.ranks
        teams = 1 if row.sag is None else 64
        ends = [cost(row, ranks, teams, end) for end in (LEAST, MOST)]
        for end in (LEAST,) if ends[0] == ends[1] else (LEAST, MOST):
            yield _table_row(row, ranks, teams, end)


def _table_row(row: Published, ranks: int, teams: int, end: str) -> Row:
    said = cost(row, ranks, teams, end)
    alpha = _makespan(row, ranks, teams, end, Port(per_message=10**9))
    beta = _makespan(row, ranks, teams, end, Port(per_byte=1.0)) * 1e9 / K
    volume = float(said.of_k + said.of_n * _elements(ranks) / K)
    equal = alpha == said.rounds and abs(beta / volume - 1) < 1e-3
    late = row.algorithm == "oktopk" and end == MOST and said.rounds <= alpha and volume <= beta
    return {
        **{"name": row.name, "ranks": ranks, "teams": teams, "gradients": end, "rounds": said.rounds, "alpha": alpha},
        **{"volume": volume, "beta": beta, "equal": "yes" if equal else "late" if late else "NO"},
        "remark": row.remark,
    }


def _elements(ranks: int) -> int:
    """So many that selections of all ranks fill them if they have nothing in common."""
    return ranks * K // 2


def _makespan(row: Published, ranks: int, teams: int, end: str, port: Port) -> float:
    setting = Setting(ranks, _elements(ranks), K, teams, row.sag or "auto", end)
    parts = sized(row.algorithm, setting, unit=lambda message: int(message.volume))
    return virtual(parts, network=Network(tuple(range(ranks)), (port,) * ranks)).seconds


# -- RNA ---------------------------------------------------------------------------------------------------------------

RNA_COLUMNS = (
    Column("P", "ranks", "d"),
    Column("pace", "pace"),
    Column("rounds", "rounds", "d"),
    Column("ranks in a round", "contributors", ".0f"),
    Column("virtual s", "virtual_s", ".2f"),
    Column("events", "events", ",d"),
    Column("simulated in s", "seconds", ".0f"),
    Column("target", "target"),
    Column("reached", "verdict"),
    Column("GB", "gigabytes", ".2f"),
)


def rna(args: argparse.Namespace) -> Iterator[Row]:
    target = at_most(120, 120)
    ranks = min(args.ranks, 1024)
    trainings, programs = rna_programs(ranks, args.rounds, args.pace)
    began, _ = seconds_and_memory()
    trace = virtual(programs, network=network(ranks))
    ended, gigabytes = seconds_and_memory()
    contributors = trainings[0].metrics.contributors
    yield {
        **{"ranks": ranks, "pace": args.pace, "rounds": len(contributors)},
        **{"contributors": sum(contributors) / len(contributors), "virtual_s": trace.seconds, "events": trace.events},
        **{"seconds": ended - began, "target": target, "verdict": target.verdict(ended - began)},
        "gigabytes": gigabytes,
    }


# -- time against P ----------------------------------------------------------------------------------------------------

RANKS_COLUMNS = (
    Column("P", "ranks", "d"),
    Column("algorithm", "algorithm"),
    Column("teams", "teams", "d"),
    Column("virtual ms", "virtual_ms", ".2f"),
    Column("messages of a rank", "messages", "d"),
    Column("bytes sent by a rank", "bytes", ",d"),
    Column("simulated in s", "seconds", ".1f"),
)


def ranks(args: argparse.Namespace) -> Iterator[Row]:
    costs = gamma(args)
    for exponent in range(2, args.ranks.bit_length()):
        count = 1 << exponent
        options = [("spardl", teams) for teams in _best_teams(count, args, costs)]
        options += [("dense_rabenseifner", 1), *([("oktopk", 1)] if count <= args.pairs else [])]
        for algorithm, teams in options:
            began = time.perf_counter()
            setting = Setting(count, args.size, args.k, teams)
            trace = virtual(sized(algorithm, setting, costs), network=network(count))
            yield {
                **{"ranks": count, "algorithm": algorithm, "teams": teams, "virtual_ms": 1e3 * trace.seconds},
                **{"messages": trace.traffic[0].messages_sent, "bytes": trace.traffic[0].bytes_sent},
                "seconds": time.perf_counter() - began,
            }


def _best_teams(count: int, args: argparse.Namespace, costs: dict[str, float]) -> list[int]:
    """The three numbers of teams that the cost model finds best, to be tried."""
    port = network(2).ports[0]
    line = Line((network(2).latency + port.per_message) / 1e9, port.per_byte / 1e9)
    profile = Profile(count, line, line, line, gamma=costs)
    best = rank_all(profile, ranks=count, size=args.size, k=args.k, algorithms=["spardl"])
    return [prediction.teams for prediction in best[:3]]


def draw(rows: list[Row], args: argparse.Namespace) -> None:
    where = {"label": LABEL, "size": args.size, "density": args.density}
    measured = [
        Measurement(Where(ranks=row["ranks"], **where), row["algorithm"], row["teams"], row["virtual_ms"], None)
        for row in rows
    ]
    draw_times(measured, RANKS, args.plot)


# -- Partial Reduce ----------------------------------------------------------------------------------------------------


def preduce(args: argparse.Namespace) -> Iterator[Row]:
    return preduce_rows(args.rounds, args.ranks, args.jitter)


# -- Hop ---------------------------------------------------------------------------------------------------------------


def hop(args: argparse.Namespace) -> Iterator[Row]:
    return hop_rows(args.rounds, args.ranks, args.step, args.jitter)


# -- against the emulated cluster --------------------------------------------------------------------------------------


def suite(args: argparse.Namespace) -> Iterator[Row]:
    return compare(args.results)


def caption(what: str, rows: list[Row]) -> str:
    if what == "table":
        return TABLE_CAPTION
    if what == "preduce":
        return PREDUCE_CAPTION
    if what == "hop":
        return hop_caption(rows)
    if what != "suite":
        return LABEL
    errors = [abs(row["error_percent"]) for row in rows]
    modelled = [abs(row["model_percent"]) for row in rows if row["model_percent"] is not None]
    worst = max(rows, key=lambda row: abs(row["error_percent"]))
    return (
        f"median error of {len(errors)} times {median(errors):.0f} %, worst {worst['error_percent']:+.0f} % "
        f"({worst['algorithm']} on {worst['ranks']} ranks, {worst['network']}); "
        f"the cost model's median {median(modelled):.0f} %"
    )


# ----------------------------------------------------------------------------------------------------------------------

Task = tuple[str, Callable[[argparse.Namespace], Iterator[Row]], tuple[Column, ...]]
TASKS: dict[str, Task] = {
    "reduce": ("one SparDL reduce, sizes only", reduce, REDUCE_COLUMNS),
    "table": ("the paper's Table 1 from makespans", table, TABLE_COLUMNS),
    "rna": ("RNA", rna, RNA_COLUMNS),
    "ranks": ("time against the number of ranks", ranks, RANKS_COLUMNS),
    "preduce": ("Partial Reduce beside its paper", preduce, PREDUCE_COLUMNS),
    "hop": ("Hop on the cluster of its paper", hop, HOP_COLUMNS),
    "suite": ("virtual time against an emulated cluster", suite, SUITE_COLUMNS),
}
BY_NAME_ONLY = ("preduce", "hop", "suite")


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("what", nargs="*", help=f"of {', '.join(TASKS)} (default: all but {', '.join(BY_NAME_ONLY)})")
    most = "the most (default: %(default)s; of RNA 1024, of preduce 256, of hop 512)"
    flags.add_argument("--ranks", type=int, default=4096, help=most)
    flags.add_argument("--pairs", type=int, default=512, help="the most where all send to all (default: %(default)s)")
    flags.add_argument("--size", type=int, default=SIZES["vgg16"], help="of the gradient (default: %(default)s)")
    flags.add_argument("--density", type=float, default=0.01, help="share to keep (default: %(default)s)")
    flags.add_argument("--rounds", type=int, default=200, help="of RNA; else steps of a rank (default: 200)")
    flags.add_argument("--pace", default="uniform:10:50ms", help="of RNA's ranks (default: %(default)s)")
    flags.add_argument("--jitter", type=float, default=JITTER, help="of steps in preduce and hop (default: 0.05)")
    flags.add_argument("--step", type=float, default=STEP, help="seconds of a step in hop (default: %(default)s)")
    flags.add_argument("--profile", type=Path, help="whose kernels' times to take (default: measured here)")
    flags.add_argument("--results", type=Path, help="a folder that benchmarks/suite.py has written, for suite")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    flags.add_argument("--plot", type=Path, metavar="PATH", help="draw what ranks or hop has found to this file")
    args = flags.parse_args()
    unknown = [name for name in args.what if name not in TASKS]
    if unknown:
        flags.error(f"expected some of {', '.join(TASKS)}, got {unknown[0]}")
    if "suite" in args.what and args.results is None:
        flags.error("suite needs --results")
    if "hop" in args.what and args.rounds < 2:
        flags.error("hop needs --rounds of at least 2: figures are of the second half")
    if args.plot is not None and {"ranks", "hop"} <= {*args.what}:
        flags.error("--plot draws ranks or hop, not both")
    args.what = args.what or [name for name in TASKS if name not in BY_NAME_ONLY]
    args.k = round(args.density * args.size)
    return args


def main() -> int:
    args = parse_args()
    everything: list[Row] = []
    for what in args.what:
        title, task, columns = TASKS[what]
        rows = list(task(args))
        print_table(title, columns, rows, caption=caption(what, rows))
        everything += [{"what": what, **row} for row in rows]
        if what == "ranks" and args.plot is not None:
            draw(rows, args)
        if what == "hop" and args.plot is not None:
            draw_hop(rows, args.plot)
    arguments.write_json(args, record.machine(kernels.load().name), everything)
    return int(any("MISSED" in row.values() or "NO" in row.values() for row in everything))


if __name__ == "__main__":
    sys.exit(main())
