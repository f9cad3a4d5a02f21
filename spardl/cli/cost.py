"""``spardl cost``: what messages and kernels cost on this cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from spardl.cost.profile import Line, Profile


@click.group()
def cost() -> None:
    """α, β and γ: latency of a message, seconds per byte, seconds per element of the kernels."""


@cost.command()
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default="profile.json", show_default=True)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw points and fit to this file.")
@click.option("--short", is_flag=True, help="Four sizes up to 4 MB instead of nine up to 64 MB.")
def measure(output: Path, plot: Path | None, short: bool) -> None:
    """Time messages of many sizes and the kernels, fit the lines, and write a profile.

    \b
    mpirun -n 4 spardl cost measure --output cluster.json --plot cluster.png
    """
    from mpi4py import MPI

    from spardl.cost.measure import SHORT_SIZES, SIZES
    from spardl.cost.measure import measure as run

    talks = MPI.COMM_WORLD.rank == 0

    def progress(what: str, done: int, total: int) -> None:
        if talks:
            click.echo(f"{what}: {done} of {total}", err=True)

    profile = run(MPI.COMM_WORLD, SHORT_SIZES if short else SIZES, progress=progress)
    if talks:
        profile.save(output)
        _print(profile)
        click.echo(f"written to {output}")
        if plot is not None:
            _draw(profile, plot)


def _print(profile: "Profile") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("messages", "α", "β", "bandwidth", title=f"{profile.ranks} ranks")
    lines = {"all ranks at once": profile.exchange, "two ranks alone": profile.ping, **profile.pairs}
    for name, line in lines.items():
        table.add_row(name, *_cells(line))
    console = Console()
    console.print(table)
    kernels = Table("kernel", "γ per element or entry")
    for name, seconds in profile.gamma.items():
        kernels.add_row(name, f"{1e9 * seconds:.2f} ns")
    console.print(kernels)


def _cells(line: "Line") -> tuple[str, str, str]:
    rate = f"{1e-6 / line.beta:,.0f} MB/s" if line.beta else "–"
    alpha = f"{1e6 * line.alpha:.1f} ± {1e6 * line.alpha_error:.1f} µs"
    return alpha, f"{1e9 * line.beta:.3f} ± {1e9 * line.beta_error:.3f} ns/B", rate


def _draw(profile: "Profile", path: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise click.ClickException("--plot needs matplotlib: pip install matplotlib") from error
    mpl.use("Agg")  # no screen needed
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for kind, line in (("exchange", profile.exchange), ("ping", profile.ping)):
        points = [(size, seconds) for what, size, seconds in profile.points if what == kind]
        sizes = sorted({size for size, _ in points})
        (drawn,) = axis.plot(
            sizes, [line(size) for size in sizes], label=f"{kind}: {1e6 * line.alpha:.0f} µs + size · β"
        )
        axis.plot(*zip(*points, strict=True), ".", color=drawn.get_color())
    axis.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds", title=f"{profile.ranks} ranks")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
