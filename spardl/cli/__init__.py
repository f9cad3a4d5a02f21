"""The ``spardl`` command."""

from typing import Any

import click

from spardl import __version__
from spardl.cli.bench import bench
from spardl.cli.cost import cost
from spardl.cli.doctor import doctor
from spardl.cli.graph import graph
from spardl.cli.timeline import timeline
from spardl.cli.train import train
from spardl.runtime.limit import time_limit


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ImportError as error:
            if error.name != "mpi4py":
                raise
            raise click.ClickException(str(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="spardl")
def main() -> None:
    """Sparse synchronisation for data-parallel training over MPI. Launch it with mpirun or srun."""
    try:
        time_limit(None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


main.add_command(bench)
main.add_command(cost)
main.add_command(doctor)
main.add_command(graph)
main.add_command(timeline)
main.add_command(train)
