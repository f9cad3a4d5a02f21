"""``spardl cost``: what messages and kernels cost on this cluster."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spardl.cli.ending import fail_together

if TYPE_CHECKING:
    from spardl.cost.profile import Line, Profile


@click.group()
def cost() -> None:
    """α, β and γ: latency of a message, seconds per byte, seconds per element of the kernels."""


@cost.command()
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default="profile.json", show_default=True)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw points and fit to this file.")
@click.option("--short", is_flag=True, help="Four sizes up to 4 MB instead of nine up to 64 MB, and no pairs of hosts.")
def measure(output: Path, plot: Path | None, short: bool) -> None:
    """Time messages of many sizes and the kernels, fit the lines, and write a profile.

    \b
    mpirun -n 4 spardl cost measure --output cluster.json --plot cluster.png
    """
    from spardl.bench import outputs
    from spardl.bench.progress import shown
    from spardl.cost.measure import SHORT_SIZES, SIZES
    from spardl.cost.measure import measure as run
    from spardl.runtime.library import MPI

    if trouble := outputs.trouble_ahead(MPI.COMM_WORLD, output, picture=plot):
        fail_together(MPI.COMM_WORLD, click.ClickException(trouble))
    talks = MPI.COMM_WORLD.rank == 0
    with shown(visible=talks) as tell:
        profile = run(MPI.COMM_WORLD, SHORT_SIZES if short else SIZES, pairs=not short, progress=tell)
    if talks:
        _print(profile)
        failures = [outputs.trouble_writing(output, lambda: profile.save(output))]
        if plot is not None:
            failures.append(outputs.trouble_writing(plot, lambda: _draw(profile, plot)))
        if any(failures):
            raise click.ClickException("; ".join(filter(None, failures)))
        click.echo(f"written to {output}")


@cost.command()
@click.option("--profile", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--size", type=click.IntRange(min=0), required=True, help="Elements of the gradient.")
@click.option("--density", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="Share of them to keep.")
@click.option("--ranks", type=click.IntRange(min=1), help="Number of ranks [default: the profile's].")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a table.")
def predict(profile: Path, size: int, density: float, ranks: int | None, as_json: bool) -> None:
    """Rank all algorithms and team counts by their predicted time, fastest first.

    \b
    spardl cost predict --profile cluster.json --size 14728266 --density 0.01 --ranks 8
    """
    from spardl.cost.plan import rank_all
    from spardl.cost.profile import Profile

    try:
        measured = Profile.load(profile)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    ranks = measured.ranks if ranks is None else ranks
    ranking = rank_all(measured, ranks=ranks, size=size, k=round(density * size))
    if as_json:
        click.echo(json.dumps([asdict(prediction) for prediction in ranking], indent=2))
        return
    from spardl.bench.table import Column, print_table

    if ranks != measured.ranks:
        click.echo(f"The profile is of {measured.ranks} ranks; α and β of {ranks} are taken to be the same.", err=True)
    columns = [
        Column("algorithm", "algorithm"),
        Column("teams", "teams", "d"),
        Column("time, ms", "time", ",.2f"),
        Column("× fastest", "slower", ".2f"),
        Column("messages, ms", "messages", ",.2f"),
        Column("kernels, ms", "kernels", ",.2f"),
        Column("rounds", "rounds", "d"),
        Column("bytes sent", "bytes_sent", ",d"),
    ]
    rows = [
        {
            "algorithm": p.algorithm,
            "teams": p.teams,
            "time": 1e3 * p.seconds,
            "slower": p.seconds / (ranking[0].seconds or 1),
            "messages": 1e3 * p.message_seconds,
            "kernels": 1e3 * p.kernel_seconds,
            "rounds": p.rounds,
            "bytes_sent": p.bytes_sent,
        }
        for p in ranking
    ]
    print_table(f"{ranks} ranks, n = {size:,}, {100 * density:g} %", columns, rows)


@cost.command("table")
@click.option("--ranks", type=click.IntRange(min=1), help="Also the numbers for so many ranks, any number.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a table.")
def show_table(ranks: int | None, as_json: bool) -> None:
    """Rounds and volumes as in Table 1 of the SparDL paper, found by walking the schedules.

    P ranks in d teams keep k of n gradients; a volume is what the busiest rank sends or receives, and an entry (index
    and value) counts as two. Formulas are for powers of two.
    """
    from spardl.cost.table import TABLE_1, bandwidth, latency

    rows: list[dict[str, Any]] = []
    for published in TABLE_1:
        formulas = {"latency": latency(published), "bandwidth": bandwidth(published)}
        told = {"paper_latency": published.latency, "paper_bandwidth": published.bandwidth, "remark": published.remark}
        rows.append({"algorithm": published.name, **formulas, **told})
    numbers = [] if ranks is None else _numbers(ranks)
    if as_json:
        click.echo(json.dumps({"formulas": rows, "numbers": numbers}, indent=2, ensure_ascii=False))
        return
    from spardl.bench.table import Column, print_table

    columns = [
        Column("algorithm", "algorithm"),
        Column("rounds (α)", "latency"),
        Column("in the paper", "paper_latency"),
        Column("volume (β)", "bandwidth"),
        Column("in the paper", "paper_bandwidth"),
        Column("remark", "remark"),
    ]
    print_table("powers of two", columns, rows)
    if numbers:
        exact = [
            Column("algorithm", "algorithm"),
            Column("teams", "teams", "d"),
            Column("rounds", "rounds"),
            Column("volume, least", "least"),
            Column("most", "most"),
        ]
        print_table(f"{ranks} ranks", exact, numbers)


def _numbers(ranks: int) -> list[dict[str, Any]]:
    """Rows for one P, which may be any."""
    from spardl.cost.table import TABLE_1, Cost, cost
    from spardl.cost.traffic import LEAST, MOST
    from spardl.schedule import is_power_of_two, team_counts

    def text(c: Cost) -> str:
        return " + ".join(f"{float(of):.4g} {unit}" for of, unit in ((c.of_k, "k"), (c.of_n, "n")) if of) or "0"

    rows: list[dict[str, Any]] = []
    for published in TABLE_1:
        teams = [1] if published.sag is None else team_counts(ranks)[1:]
        for d in teams:
            if published.sag == "r" and not is_power_of_two(d):
                continue
            least, most = (cost(published, ranks, d, end) for end in (LEAST, MOST))
            rounds = f"{least.rounds}" if least.rounds == most.rounds else f"{least.rounds} … {most.rounds}"
            volumes = {"least": text(least), "most": text(most)}
            rows.append({"algorithm": published.name, "teams": d, "rounds": rounds, **volumes})
    return rows


def _print(profile: "Profile") -> None:
    from spardl.bench.table import Column, print_table

    lines = {
        "all ranks at once": profile.exchange,
        "two ranks alone": profile.ping,
        "the library's all-reduce": profile.allreduce,
        **profile.pairs,
    }
    columns = [Column("messages", "messages"), Column("α", "alpha"), Column("β", "beta"), Column("bandwidth", "rate")]
    print_table(f"{profile.ranks} ranks", columns, [{"messages": name, **_cells(line)} for name, line in lines.items()])
    kernels = [{"kernel": name, "gamma": 1e9 * seconds} for name, seconds in profile.gamma.items()]
    columns = [Column("kernel", "kernel"), Column("γ, ns", "gamma", ",.2f")]
    print_table("per element or entry; of a call, of a round, of a frame", columns, kernels)


def _cells(line: "Line") -> dict[str, str]:
    return {
        "alpha": f"{1e6 * line.alpha:.1f} ± {1e6 * line.alpha_error:.1f} µs",
        "beta": f"{1e9 * line.beta:.3f} ± {1e9 * line.beta_error:.3f} ns/B",
        "rate": f"{1e-6 / line.beta:,.0f} MB/s" if line.beta else "–",
    }


def _draw(profile: "Profile", path: Path) -> None:
    from spardl.bench.figure import new_figure, save

    figure = new_figure(6.5, 4.2)
    axis = figure.subplots()
    for kind, line in (("exchange", profile.exchange), ("ping", profile.ping), ("allreduce", profile.allreduce)):
        points = [(size, seconds) for what, size, seconds in profile.points if what == kind]
        sizes = sorted({size for size, _ in points})
        (drawn,) = axis.plot(
            sizes, [line(size) for size in sizes], label=f"{kind}: {1e6 * line.alpha:.0f} µs + size · β"
        )
        axis.plot(*zip(*points, strict=True), ".", color=drawn.get_color())
    axis.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds", title=f"{profile.ranks} ranks")
    axis.grid(alpha=0.3)
    axis.legend()
    save(figure, path)
