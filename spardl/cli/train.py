"""``spardl train``: the digits job, with one way of synchronising or several to compare."""

import json
import os
import re
import signal
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spardl import environment
from spardl.cli.ending import exit_together, fail_together

if TYPE_CHECKING:
    from mpi4py import MPI

    from spardl.cli.course import Job, Sync
    from spardl.cli.digits import Outcome


_STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


SYNCS = (
    *("spardl", "dense", "rna", "rna-sparse", "rna-groups", "rna-sparse-groups", "majority", "solo", "bsp"),
    *("preduce", "preduce-dynamic", "preduce-sparse", "hop", "hop-sparse", "adpsgd"),
)


class NumberOrAuto(click.ParamType[int | str]):
    """A number from ``least`` on, or ``auto``."""

    name = "number|auto"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int | str:
        return "auto" if value == "auto" else int(click.IntRange(self._least).convert(value, parameter, context))


@click.command()
@click.option(
    "--sync",
    "syncs",
    type=click.Choice(SYNCS),
    multiple=True,
    default=("spardl",),
    help="How gradients are synchronised; give several to compare. rna, majority, solo: whoever is ready takes part, "
    "rna-sparse: with SparDL, -groups: within groups of similar speed; bsp: the same, waiting for all; preduce: groups "
    "of whoever is ready average their models, -dynamic: those behind count less, -sparse: the largest differences; "
    "hop: neighbours on a graph do, hop-sparse: by what has changed most, adpsgd: one of them at a time.  "
    "[default: spardl]",
)
@click.option("--density", type=click.FloatRange(0, 1, min_open=True), default=0.01, show_default=True)
@click.option(
    "--teams",
    type=NumberOrAuto(1),
    multiple=True,
    default=(1,),
    help="Must divide the number of ranks, or auto; give several to compare.  [default: 1]",
)
@click.option(
    "--group",
    type=NumberOrAuto(2),
    help="How many ranks form a group of preduce, or auto.  [default: half of the ranks, at least 2]",
)
@click.option("--graph", "graph_name", default="ring-based", show_default=True, help="Of hop and adpsgd.")
@click.option("--max-gap", type=click.IntRange(1), default=4, show_default=True, help="Hop: iterations ahead at most.")
@click.option("--backup", type=click.IntRange(0), default=0, show_default=True, help="Hop: neighbours not waited for.")
@click.option("--staleness", type=click.IntRange(0), help="Hop: neighbours' models may be so many iterations old.")
@click.option("--skip", type=(int, int), help="Hop: BEHIND MOST; jump when so far behind, so many at most.")
@click.option("--residual", type=click.Choice(["global", "partial", "local"]), default="global", show_default=True)
@click.option("--warmup", type=click.IntRange(0), default=0, show_default=True, help="Steps with higher densities.")
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Train for so long instead; every rank does what it can. Not with spardl and dense, which keep all in step.",
)
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True, help="Over all ranks.")
@click.option("--lr", type=click.FloatRange(0, min_open=True), default=0.1, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--delay", default="none", show_default=True, help="Stragglers: uniform:0:50ms, slow-half:50:100ms, random6x."
)
@click.option(
    "--checkpoint",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save here after every epoch, and go on from what is there. On SIGUSR1 or SIGTERM, to any rank: finish the "
    f"step, save, and exit with {os.EX_TEMPFAIL}. For spardl and dense.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Also write the table here.")
@click.option(
    "--plot", "plot_path", type=click.Path(dir_okay=False, path_type=Path), help="Draw loss against time to this file."
)
@click.option(
    "--timeline",
    "timeline_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what every rank did when to this file, for ui.perfetto.dev or chrome://tracing.",
)
def train(
    syncs: tuple[str, ...],
    density: float,
    teams: tuple[int | str, ...],
    group: int | str | None,
    graph_name: str,
    max_gap: int,
    backup: int,
    staleness: int | None,
    skip: tuple[int, int] | None,
    residual: str,
    warmup: int,
    epochs: int,
    seconds: float | None,
    batch: int,
    lr: float,
    seed: int,
    delay: str,
    folder: Path | None,
    json_path: Path | None,
    plot_path: Path | None,
    timeline_path: Path | None,
) -> None:
    """Train a network on handwritten digits (1,797 images that come with scikit-learn).

    \b
    mpirun -n 4 spardl train --density 0.01
    mpirun -n 6 spardl train --sync dense --sync spardl --teams 2
    mpirun -n 4 spardl train --checkpoint saved
    mpirun -n 6 spardl train --sync bsp --sync rna --sync rna-sparse --delay uniform:0:50ms
    mpirun -n 6 spardl train --sync bsp --sync preduce --sync preduce-dynamic --group 3 --delay slow-half:50:100ms
    mpirun -n 6 spardl train --sync bsp --sync hop --graph ring-based --backup 1 --delay random6x
    """
    if timeline_path is not None:
        os.environ[environment.TIMELINE.name] = str(timeline_path)
    if folder is not None and (unfit := [name for name in syncs if name not in ("spardl", "dense")]):
        raise click.UsageError(
            f"--checkpoint: the ranks of --sync {unfit[0]} are not at the same step at any time; take spardl or dense"
        )
    if seconds is not None and {"spardl", "dense"} & set(syncs):
        raise click.UsageError("--seconds: spardl and dense keep all ranks in step; compare with bsp, or give --epochs")
    if folder is not None:
        # Importing torch takes long, and a signal that came meanwhile would end the process. So it waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    # Not above: `spardl --help` need not wait for MPI, nor a wrong option for torch.
    from spardl.delays import parse_delay
    from spardl.runtime.library import MPI

    try:
        parse_delay(delay)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--delay") from error
    comm = MPI.COMM_WORLD
    if batch < comm.size:
        fail_together(comm, click.UsageError(f"--batch {batch} leaves some of the {comm.size} ranks without images"))
    import spardl.torch as spt
    from spardl.cli.course import Job

    size = max(2, comm.size // 2) if group is None else group
    if isinstance(size, int) and size > max(2, comm.size):
        fail_together(comm, click.UsageError(f"--group {size} is more than the {comm.size} ranks there are"))
    runs = _choose(syncs, density, teams, size, residual, warmup)
    on_graph: dict[str, spt.Hop | spt.Gossip] = {
        "hop": spt.Hop(graph_name, max_gap, backup, staleness, skip=skip),
        "hop-sparse": spt.Hop(graph_name, max_gap, order="serial", density=density),
        "adpsgd": spt.Gossip(graph_name),
    }
    for name in [name for name in runs if name in on_graph]:
        runs[name] = on_graph[name]
        try:
            on_graph[name].require_fitting(comm.size)
        except ValueError as error:
            fail_together(comm, click.UsageError(str(error)))
    _compare(runs, Job(epochs, batch, lr, seed, delay, seconds), folder, json_path, plot_path)


def _choose(
    names: tuple[str, ...],
    density: float,
    teams: tuple[int | str, ...],
    group: int | str,
    residual: str,
    warmup: int,
) -> "dict[str, Sync]":
    """What to compare, by the names that the table will show."""
    import spardl.torch as spt

    others: dict[str, Sync] = {
        "dense": spt.Dense(),
        "rna": spt.RNA(),
        "rna-sparse": spt.RNA(reduce=spt.SparDL(density=density)),
        "rna-groups": spt.RNA(groups="auto"),
        "rna-sparse-groups": spt.RNA(reduce=spt.SparDL(density=density), groups="auto"),
        "majority": spt.RNA(policy=spt.Majority()),
        "solo": spt.RNA(policy=spt.Solo()),
        "bsp": spt.RNA(policy=spt.All()),
        "hop": spt.Hop(),
        "hop-sparse": spt.Hop(),
        "adpsgd": spt.Gossip(),
        "preduce": spt.PartialReduce(group, "constant"),
        "preduce-dynamic": spt.PartialReduce(group, "dynamic"),
        "preduce-sparse": spt.PartialReduce(group, "constant", reduce=spt.SparDL(density=density)),
    }
    runs: dict[str, Sync] = {}
    for name in names:
        if name in others:
            runs[name] = others[name]
            continue
        for number in teams:
            schedule = spt.Warmup(density, warmup) if warmup else density
            label = f"{name}, {number} teams" if number != 1 else name
            runs[label] = spt.SparDL(density=schedule, teams=number, residual=residual)
    return runs


def _compare(
    syncs: "dict[str, Sync]", job: "Job", folder: Path | None, json_path: Path | None, plot_path: Path | None
) -> None:
    import torch

    from spardl.bench import outputs, ranks
    from spardl.cli.digits import Stopped
    from spardl.runtime.library import MPI

    comm = MPI.COMM_WORLD
    if trouble := outputs.trouble_ahead(comm, json_path, picture=plot_path):
        fail_together(comm, click.ClickException(trouble))
    torch.set_num_threads(1)  # ranks share the cores
    try:
        outcomes = _run_all(comm, syncs, job, folder)
    except Stopped as stopped:
        if comm.rank == 0:
            click.echo(f"{stopped}; the same command goes on from what is saved in {folder}", err=True)
        exit_together(comm, os.EX_TEMPFAIL)
    except click.ClickException as error:  # of a checkpoint; the same on all ranks
        fail_together(comm, error)
    failures: list[str] = []
    if comm.rank == 0:
        _print_table(outcomes, comm.size)
        if json_path is not None:
            rows = {name: asdict(outcome) | {"sync": asdict(syncs[name])} for name, outcome in outcomes.items()}
            text = json.dumps({"ranks": comm.size, "job": asdict(job), "runs": rows}, indent=2) + "\n"
            failures.append(outputs.trouble_writing(json_path, partial(json_path.write_text, text)))
        if plot_path is not None:
            title = f"digits, {comm.size} ranks, delay {job.delay}"
            failures.append(outputs.trouble_writing(plot_path, partial(_draw, outcomes, plot_path, title)))
    if not all(outcome.same_bits for outcome in outcomes.values()):
        failures.append("the ranks ended with different weights")
    if failed := ranks.gather_texts(comm, "; ".join(filter(None, failures)))[0]:
        fail_together(comm, click.ClickException(failed))


def _run_all(comm: "MPI.Intracomm", syncs: "dict[str, Sync]", job: "Job", folder: Path | None) -> "dict[str, Outcome]":
    import spardl.torch as spt
    from spardl.bench.progress import shown
    from spardl.cli.checkpoint import Checkpoint
    from spardl.cli.digits import run

    outcomes: dict[str, Outcome] = {}
    total = None if job.seconds else job.epochs * len(syncs)

    def advance(name: str, before: int, epoch: int, loss: float) -> None:
        tell(f"{name}: epoch {epoch}, loss {loss:.4f}", before + epoch, total)

    with shown(visible=comm.rank == 0) as tell, ExitStack() as stack:
        stop = None
        if folder is not None:
            stack.callback(_ignore_signals)
            stop = stack.enter_context(spt.StopSignals(comm, _STOP_SIGNALS))
        for name, sync in syncs.items():
            told = partial(advance, name, job.epochs * len(outcomes))
            if folder is None or stop is None:
                outcomes[name] = run(comm, sync, job, told)
            else:
                path = folder / (re.sub(r"\W+", "-", name) + ".pt")
                numbers = {"epochs": job.epochs, "batch": job.batch, "lr": job.lr, "seed": job.seed}
                checkpoint = Checkpoint(comm, path, {"sync": str(sync)} | numbers)
                outcomes[name] = run(comm, sync, job, told, checkpoint, stop.asked)
    return outcomes


def _ignore_signals() -> None:
    """Everything is saved: what remains is to say so, and an exit code that tells how it went."""
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _print_table(outcomes: "dict[str, Outcome]", ranks: int) -> None:
    from spardl.bench.table import Column, print_table

    columns = [
        Column("sync", "sync"),
        Column("accuracy", "accuracy", ".2%"),
        Column("loss", "loss", ".4f"),
        Column("seconds", "seconds", ".2f"),
        Column("bytes sent", "bytes_sent", ",d"),
        Column("× fewer", "fewer", ",.1f"),
        Column("density", "density", ".2%"),
        Column("same bits", "same"),
        Column("iterations/s", "iterations_per_second", ".1f"),
        Column("rounds/s", "rounds_per_second", ".1f"),
        Column("in a round", "contributors", ".2f"),
        Column("groups", "groups"),
        Column("dropped", "dropped", ",d"),
        Column("waited, s", "waited_seconds", ".2f"),
        Column("ρ", "rho", ".2f"),
        Column("largest gap", "largest_gap", "d"),
        Column("late", "late", ",d"),
        Column("skipped", "skipped", ",d"),
        Column("busy", "busy", ",d"),
        Column("distance", "distance", ".3g"),
    ]
    rows = []
    for name, outcome in outcomes.items():
        fewer = outcome.dense_bytes / max(outcome.bytes_sent, 1)
        row = {
            "sync": name,
            "fewer": fewer,
            "same": "yes" if outcome.same_bits else "NO",
            "groups": outcome.groups or None,
        }
        rows.append(asdict(outcome) | row)
    # What only matters where rounds are partial.
    if not any(outcome.staleness for outcome in outcomes.values()):
        columns = columns[:8]
    print_table(f"digits, {ranks} ranks; accuracy on the test images, bytes of the busiest rank", columns, rows)


def _draw(outcomes: "dict[str, Outcome]", path: Path, title: str) -> None:
    from spardl.bench.figure import new_figure, save

    figure = new_figure(6.5, 4.2)
    axis = figure.subplots()
    for name, outcome in outcomes.items():
        axis.plot(*zip(*outcome.history, strict=True), ".-", label=name)
    axis.set(xlabel="seconds", ylabel="training loss of an epoch, rank 0", yscale="log", title=title)
    axis.grid(alpha=0.3)
    axis.legend()
    save(figure, path)
