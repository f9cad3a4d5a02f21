"""Ends, stops and confuses real ranks at random moments, and counts what the others make of it.

    python tests/chaos/campaign.py --injections 200 --seed 1 --json chaos.json
    python tests/chaos/campaign.py --seed 1 --only 17 --verbose  # that one again

Columns: **hung**, a process was there 5 s after the time limit, which begins with the fault or when a rank last got
on; **silent**, success although the job cannot have ended well, or ranks with different results; **needless**, an error
although no rank had failed; **errors** of survivors that name a rank, of which **wrong** name one that is well;
**unnamed**, errors that name nobody. Where the launcher ends the job at once, survivors may have no time for errors.
Exits with 1 if anything hung, was silent or needless, or if more than 5 % of the errors that name a rank are wrong.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from injection import FAULTS, WORKLOADS, Injection, draw
from job import Course, run
from verdict import Verdict, judge

from spardl.bench.table import Column, print_table

MOST_WRONG = 0.05  # of the errors that name a rank
COLUMNS = (
    Column("workload", "workload"),
    Column("fault", "fault"),
    Column("jobs", "jobs", "d"),
    Column("missed", "missed", "d"),
    Column("hung", "hung", "d"),
    Column("silent", "silent", "d"),
    Column("needless", "needless", "d"),
    Column("errors", "named", "d"),
    Column("wrong", "wrong", "d"),
    Column("unnamed", "unnamed", "d"),
    Column("median s", "median", ".1f"),
    Column("max s", "max", ".1f"),
)


@dataclass(frozen=True)
class Outcome:
    injection: Injection
    course: Course
    verdict: Verdict


def strike(injection: Injection, time_limit: float, mercy: float) -> Outcome:
    """One injection, from the start of its job to the verdict."""
    course = run(injection, time_limit, mercy)
    return Outcome(injection, course, judge(injection, course))


def strike_all(injections: Iterable[Injection], jobs: int, time_limit: float, mercy: float) -> list[Outcome]:
    """All of them, so many at once; tells of those that ended badly as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = []
        for outcome in pool.map(lambda injection: strike(injection, time_limit, mercy), injections):
            outcomes.append(outcome)
            tell(outcome)
        return outcomes


def tell(outcome: Outcome) -> None:
    verdict = outcome.verdict
    said = [f"hung: {', '.join(verdict.hung)}"] * bool(verdict.hung)
    said += [f"silent: {verdict.silent}"] * bool(verdict.silent)
    said += [f"needless: {verdict.needless}"] * bool(verdict.needless)
    said += [f"wrong: {text}" for text in verdict.wrong]
    if said:
        print("\n  ".join([str(outcome.injection), *said]), file=sys.stderr, flush=True)


def tabulate(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for every workload and fault, and one for all."""
    rows = []
    for workload in WORKLOADS:
        for fault in FAULTS:
            some = [o for o in outcomes if (o.injection.workload, o.injection.fault) == (workload, fault)]
            if some:
                rows.append({"workload": workload, "fault": fault} | count([o.verdict for o in some]))
    return [*rows, {"workload": "all", "fault": ""} | count([o.verdict for o in outcomes])]


def count(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    seconds = [verdict.seconds for verdict in verdicts if not verdict.missed]
    return {
        "jobs": len(verdicts),
        "missed": sum(verdict.missed for verdict in verdicts),
        "hung": sum(bool(verdict.hung) for verdict in verdicts),
        "silent": sum(bool(verdict.silent) for verdict in verdicts),
        "needless": sum(bool(verdict.needless) for verdict in verdicts),
        "named": sum(verdict.named for verdict in verdicts),
        "wrong": sum(len(verdict.wrong) for verdict in verdicts),
        "unnamed": sum(len(verdict.unnamed) for verdict in verdicts),
        "median": median(seconds) if seconds else None,
        "max": max(seconds) if seconds else None,
    }


def passed(total: dict[str, Any]) -> bool:
    return not (total["hung"] or total["silent"] or total["needless"]) and total["wrong"] <= MOST_WRONG * total["named"]


def write(path: Path, parameters: dict[str, Any], rows: Sequence[dict[str, Any]], outcomes: Sequence[Outcome]) -> None:
    injections = [asdict(o.injection) | {"verdict": asdict(o.verdict), "code": o.course.code} for o in outcomes]
    record = {"parameters": parameters, "rows": rows, "injections": injections}
    path.write_text(json.dumps(record, indent=2, default=str) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--injections", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, action="append", metavar="NUMBER", help="just this injection")
    parser.add_argument("--workload", choices=WORKLOADS)
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--time-limit", type=float, default=4.0, help="SPARDL_TIMEOUT of the jobs, in seconds")
    parser.add_argument("--mercy", type=float, default=5.0, help="seconds after the time limit in which to end")
    parser.add_argument("--jobs", type=int, default=2, help="at once")
    parser.add_argument("--json", type=Path, help="a file for the counts and every injection")
    parser.add_argument("--verbose", action="store_true", help="prints what the jobs print")
    arguments = parser.parse_args()

    numbers = arguments.only or range(arguments.injections)
    injections = [draw(arguments.seed, number, arguments.workload, arguments.fault) for number in numbers]
    outcomes = strike_all(injections, arguments.jobs, arguments.time_limit, arguments.mercy)
    if arguments.verbose:
        for outcome in outcomes:
            print(f"=== {outcome.injection}\n{outcome.course.output}")
    rows = tabulate(outcomes)
    title = f"{len(outcomes)} injections, seed {arguments.seed}, time limit {arguments.time_limit:g} s"
    print_table(title, COLUMNS, rows, "passed" if passed(rows[-1]) else "FAILED")
    if arguments.json:
        write(arguments.json, vars(arguments), rows, outcomes)
    return 0 if passed(rows[-1]) else 1


if __name__ == "__main__":
    sys.exit(main())
