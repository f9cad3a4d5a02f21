"""``spardl bench``: all algorithms under the same flags, checked in the run that is timed; and pictures of it."""

import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spardl.bench.sizes import SIZES, parse_size
from spardl.cli.ending import fail_together
from spardl.kernels import BACKENDS
from spardl.wire import INDEX_CODINGS, VALUE_CODINGS

if TYPE_CHECKING:
    from mpi4py import MPI

    from spardl.bench.contenders import Contender
    from spardl.bench.table import Row
    from spardl.cost.profile import Profile


def _sizes(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> list[int]:
    try:
        return list(map(parse_size, texts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.group(invoke_without_command=True)
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    default=("all",),
    metavar="NAME",
    help="A name that SparseAllreduce knows, or spardl:TEAMS; give several to compare.  [default: all, and SparDL with "
    "all possible numbers of teams]",
)
@click.option(
    "--size",
    "sizes",
    callback=_sizes,
    multiple=True,
    default=("vgg16",),
    metavar="N",
    help=f"Elements of the gradient, or {', '.join(SIZES)}; may be repeated.  [default: vgg16]",
)
@click.option(
    "--density",
    "densities",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    default=(0.01,),
    help="Share of them to keep; may be repeated.  [default: 0.01]",
)
@click.option("--warmup", type=click.IntRange(0), default=3, show_default=True, help="Runs before the timed ones.")
@click.option("--repeats", type=click.IntRange(1), default=10, show_default=True, help="Timed runs.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    help="After which an algorithm is not repeated again; at least twice.",
)
@click.option("--baseline/--no-baseline", default=True, show_default=True, help="A bare MPI_Allreduce to compare with.")
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="To predict from, by `spardl cost measure`; without it, a short one is measured first.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write everything measured as JSON.")
@click.option("--label", default="", metavar="TEXT", help='For tables and pictures, e.g. "1 Gbit/s".')
@click.option("--memory", is_flag=True, help="Also the peak memory of each algorithm.")
@click.option("--backend", type=click.Choice(["auto", *BACKENDS]), default="auto", show_default=True, help="Kernels.")
@click.option("--wire", type=click.Choice(INDEX_CODINGS), default="auto", show_default=True, help="Index coding.")
@click.option(
    "--wire-dtype",
    type=click.Choice(VALUE_CODINGS),
    default="same",
    show_default=True,
    help="Values that sparse algorithms send.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random gradients.")
@click.pass_context
def bench(context: click.Context, /, **parameters: Any) -> None:
    """Time sparse and dense all-reduces on random gradients, check them, and compare with what the cost model predicts.

    \b
    mpirun -n 6 spardl bench --size resnet20 --output results.json
    mpirun -n 6 spardl bench --algorithm spardl:2 --algorithm oktopk --size 1000000 --density 0.01 --density 0.001
    spardl bench plot results.json --output pictures

    Algorithms take turns. Exits with 1 if the ranks' results differ in a bit, or if results and residuals do not add up
    to what was handed in.
    """
    if context.invoked_subcommand is None:
        _run(**parameters)


def _run(**flags: Any) -> None:
    from spardl.bench.prediction import add_predictions
    from spardl.bench.progress import shown
    from spardl.bench.race import Plan, compete
    from spardl.bench.runner import Options, make_gradients
    from spardl.runtime.library import MPI

    comm = MPI.COMM_WORLD
    contenders = _contenders(comm, flags["algorithms"])
    profile = _profile(comm, flags["profile"], flags["output"])
    options = Options(**{name: flags[name] for name in ("backend", "wire", "wire_dtype")})
    course = {name: flags[name] for name in ("warmup", "repeats", "max_seconds", "baseline", "memory")}
    plan = Plan(options=options, **course)
    facts = _facts(comm, flags)
    rows: list[Row] = []
    for size in flags["sizes"]:
        gradients = make_gradients(comm.rank, size, flags["seed"])
        for density in flags["densities"]:
            with shown(comm.rank == 0) as tell:
                found = compete(comm, contenders, gradients, density, plan, tell)
            rows += found
            if profile is not None:  # on rank 0
                add_predictions(found, profile, comm.size, options)
                _show(found, facts)
                _write(rows, facts, profile, flags)  # now: a run that is stopped leaves what it has
    if any(row.get("wrong") for row in rows):
        fail_together(comm, click.ClickException("some results are wrong: see #wrong"))


def _contenders(comm: "MPI.Intracomm", names: tuple[str, ...]) -> "list[Contender]":
    from spardl.bench.contenders import choose

    try:
        return choose(names, comm.size)
    except ValueError as error:
        fail_together(comm, click.BadParameter(str(error), param_hint="--algorithm"))


def _profile(comm: "MPI.Intracomm", path: Path | None, output: Path | None) -> "Profile | None":
    """On rank 0, which alone reads and writes files: hosts need not share any."""
    from spardl.bench import outputs, ranks
    from spardl.bench.progress import shown
    from spardl.cost.measure import SHORT_SIZES, measure
    from spardl.cost.profile import Profile

    profile, trouble = None, ""
    if comm.rank == 0:
        try:
            profile = None if path is None else Profile.load(path)
        except (OSError, ValueError) as error:
            trouble = str(error)
    if trouble := ranks.gather_texts(comm, trouble)[0] or outputs.trouble_ahead(comm, output):
        fail_together(comm, click.ClickException(trouble))
    if path is None:
        with shown(comm.rank == 0) as tell:
            profile = measure(comm, SHORT_SIZES, pairs=False, progress=tell)
    return profile if comm.rank == 0 else None


def _facts(comm: "MPI.Intracomm", flags: dict[str, Any]) -> "Row":
    from spardl import kernels
    from spardl.bench import ranks, record
    from spardl.runtime.library import MPI

    names = ranks.gather_texts(comm, MPI.Get_processor_name())
    machine = record.machine(kernels.load(flags["backend"]).name)
    machine["mpi"] = " ".join(MPI.Get_library_version().splitlines()[0].split())
    return {"label": flags["label"], "ranks": comm.size, "hosts": len(set(names)), "machine": machine}


def _show(rows: "list[Row]", facts: "Row") -> None:
    from spardl.bench import record
    from spardl.bench.memory import FIRST_REDUCES
    from spardl.bench.race import least_sent
    from spardl.bench.rows import COLUMNS, LEGEND, MEMORY_COLUMNS
    from spardl.bench.table import print_table

    first, hosts = rows[0], facts["hosts"]
    where = f"{facts['ranks']} ranks on {hosts} host{'s' if hosts > 1 else ''}"
    title = (
        f"{', '.join(filter(None, (facts['label'], where)))}: n = {first['size']:,}, k = {first['k']:,}, float32; "
        f"dense: at least {least_sent(facts['ranks'], 4 * first['size']):,} bytes sent per rank"
    )
    print_table(title, COLUMNS, rows, caption=f"{LEGEND}\n{record.describe(facts['machine'])}")
    if any("arrays_per_dense" in row for row in rows):
        peak = f"Peak of the first {FIRST_REDUCES} reduces beyond gradient and residual, over the dense size"
        print_table(f"{peak} (for SparDL, 1 + O(k) is due)", MEMORY_COLUMNS, [row for row in rows if "law" in row])


def _write(rows: "list[Row]", facts: "Row", profile: "Profile", flags: dict[str, Any]) -> None:
    from spardl.bench import outputs, record

    if flags["output"] is not None:
        facts = dict(facts)
        command = f"mpiexec -n {facts['ranks']} spardl {shlex.join(sys.argv[1:])}"
        parameters = {name: value for name, value in flags.items() if name not in ("output", "label")}
        machine, path = facts.pop("machine"), flags["output"]
        write = partial(record.write, path, command, machine, parameters, rows, **facts, profile=asdict(profile))
        if trouble := outputs.trouble_writing(path, write):
            click.echo(trouble, err=True)


@bench.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=".", show_default=True, help="A folder."
)
def plot(results: tuple[Path, ...], output: Path) -> None:
    """Draw time against ranks, time against density, and measured against predicted time.

    \b
    spardl bench plot two.json four.json eight.json --output pictures
    """
    from spardl.bench.plot import draw_all
    from spardl.bench.results import load

    try:
        pictures = draw_all(load(results), output)
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    for picture in pictures:
        if picture.panels:
            click.echo(f"{picture.path}: {picture.panels} panel{'s' if picture.panels > 1 else ''}")
        else:
            click.echo(f"{picture.path.name} not drawn: {picture.why_not}")
