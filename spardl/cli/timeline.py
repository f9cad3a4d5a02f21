"""``spardl timeline``: one file from those that the ranks of a run have left."""

from pathlib import Path

import click

from spardl.timeline.merge import merge


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def timeline(path: Path) -> None:
    """Merge the timelines of ranks, PATH.rank0, PATH.rank1, …, into PATH.

    A run with SPARDL_TIMELINE=PATH does so when it ends. This is for one that was killed, whose unfinished
    PATH.rank*.part files are used too, or whose ranks have no file system in common. Open PATH in ui.perfetto.dev.
    """
    try:
        ranks = merge(path)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{path}: ranks {', '.join(map(str, ranks))}")
