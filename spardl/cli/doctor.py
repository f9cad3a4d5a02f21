"""``spardl doctor``: is this job fit to train, and if not, what to do."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spardl.cli.ending import end_job, exit_together

if TYPE_CHECKING:
    from mpi4py import MPI

    from spardl.doctor.examine import Report


@click.command()
@click.option("--env", "list_variables", is_flag=True, help="List the variables that spardl reads, and nothing else.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    help="Write verdicts and facts of all ranks to this file, or - for stdout in place of the lines.",
)
@click.option("--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds for each step.")
def doctor(list_variables: bool, json_path: str | None, timeout: float) -> None:
    """Look at MPI, code, cores, memory and network of all ranks, try some reduces, and tell what to do.

    \b
    spardl doctor
    mpirun -n 4 spardl doctor --json ticket.json
    srun --mpi=pmi2 -n 8 spardl doctor

    Exits with 1 if the job is not fit to train.
    """
    if list_variables:
        _list_variables()
        return
    from spardl.doctor.start import start_mpi

    try:
        comm, shm_free = start_mpi(lambda line: click.echo(f"before MPI starts: {line}", err=True), timeout)
    except (ImportError, RuntimeError) as error:
        advice = "Load your cluster's MPI module, or `pip install mpich`."
        raise click.ClickException(f"mpi4py finds no MPI library: {error}. {advice}") from error
    from spardl.doctor.examine import examine
    from spardl.doctor.verdict import is_fit

    report = examine(comm, shm_free, timeout)
    fit = is_fit(report.verdicts)
    if _speaks(comm):
        _tell(report, fit, json_path)
    if report.stuck:
        end_job(comm, 1)
    exit_together(comm, 0 if fit else 1)


def _speaks(comm: "MPI.Intracomm") -> bool:
    """Of processes that are alone by mistake, only the one that the launcher calls the first."""
    from spardl.runtime import launch

    told = launch.told(os.environ)
    return comm.rank == 0 and (comm.size > 1 or told is None or told.rank == 0)


def _tell(report: "Report", fit: bool, json_path: str | None) -> None:
    if json_path is not None:
        facts = [asdict(facts) for facts in report.facts]
        verdicts = [verdict._asdict() for verdict in report.verdicts]
        text = json.dumps({"fit": fit, "verdicts": verdicts, "ranks": facts}, indent=2)
        if json_path == "-":
            click.echo(text)
            return
        try:
            Path(json_path).write_text(text + "\n")
        except OSError as error:  # the verdicts matter more
            click.echo(f"{json_path} cannot be written: {error.strerror}", err=True)
    for verdict in report.verdicts:  # in plain text: some launchers' pipes look like terminals, and end in log files
        sentences = [text.rstrip(".") for text in (verdict.what, verdict.todo) if text]
        click.echo(f"{verdict.level:8} {verdict.item:9} {'. '.join(sentences)}.")
    wrong = ", ".join(verdict.item for verdict in report.verdicts if verdict.level == "error")
    click.echo(f"not fit to train: {wrong}" if wrong else "fit to train")


def _list_variables() -> None:
    from spardl.bench.table import Column, print_table
    from spardl.environment import VARIABLES

    columns = [Column(name, name) for name in ("variable", "now", "default", "meaning")]
    rows = [
        {"variable": v.name, "now": os.environ.get(v.name), "default": v.default, "meaning": v.meaning}
        for v in VARIABLES
    ]
    print_table("Environment variables that spardl reads", columns, rows)
