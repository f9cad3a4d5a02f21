"""``spardl graph``: the communication graphs for a number of ranks, compared and drawn."""

import re
import shlex
import sys
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from spardl.bench.table import Row
    from spardl.graphs import Graph

_MOST_NUMBERED = 64  # ranks; of more, a picture shows dots only


@click.command()
@click.argument("name", required=False)
@click.option("--ranks", type=click.IntRange(min=1), help="Number of ranks [default: those of --hosts].")
@click.option("--hosts", "layout", help="Hosts and ranks on each, 2x4; or how many are on each, 4,3,1.")
@click.option(
    "--weights",
    type=click.Choice(["metropolis", "uniform"]),
    default="metropolis",
    show_default=True,
    help="Of models.",
)
@click.option("--degree", type=click.IntRange(min=0), help="Of random-regular [default: 3; 4 if the ranks are odd].")
@click.option("--seed", type=int, default=0, show_default=True, help="Of random-regular.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw to this file.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the table to this file.")
def graph(name: str | None, layout: str | None, plot: Path | None, output: Path | None, **flags: Any) -> None:
    """Compare the communication graphs for decentralised training, or show the one called NAME.

    Without a NAME all that fit the number of ranks are shown. Runs without mpirun. Names:

    \b
    ring, ring-based, double-ring, hosts, exponential, one-peer-exponential,
    hypercube, torus, random-regular, complete, star

    \b
    spardl graph --ranks 8
    spardl graph double-ring --hosts 4x4 --plot graph.png
    """
    from spardl.bench import figure

    hosts = None if layout is None else _hosts(layout)
    flags["ranks"] = _ranks(flags["ranks"], hosts)
    graphs = _make(name, hosts, **flags)
    rows = [_row(one, hosts) for one in graphs]
    _print(rows, layout, flags)
    try:
        if output is not None:
            _write(output, rows, {"name": name, "hosts": layout, **flags})
        if plot is not None:
            if trouble := figure.trouble(plot):
                raise click.ClickException(trouble)
            _draw(graphs, hosts, plot)
    except OSError as error:
        raise click.ClickException(str(error)) from error


def _hosts(layout: str) -> list[int]:
    """By rank, the number of its host."""
    if equal := re.fullmatch(r"(\d+)x(\d+)", layout):
        sizes = int(equal[1]) * [int(equal[2])]
    elif re.fullmatch(r"\d+(,\d+)*", layout):
        sizes = [int(size) for size in layout.split(",")]
    else:
        sizes = []
    if not sizes or min(sizes) == 0:
        raise click.UsageError(
            f"--hosts: expected hosts and ranks on each, 2x4, or the ranks of each, 4,3,1; got {layout}"
        )
    return [host for host, size in enumerate(sizes) for _ in range(size)]


def _ranks(ranks: int | None, hosts: list[int] | None) -> int:
    if hosts is None and ranks is None:
        raise click.UsageError("expected --ranks or --hosts")
    if hosts is not None and ranks not in (None, len(hosts)):
        raise click.UsageError(f"--hosts has {len(hosts)} ranks, and --ranks says {ranks}")
    return ranks if ranks is not None else len(hosts or ())


def _make(name: str | None, hosts: list[int] | None, ranks: int, degree: int | None, **options: Any) -> "list[Graph]":
    """The one of this name, or all that fit."""
    try:
        from spardl.graphs import fitting
        from spardl.graphs import graph as make
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    names = [name] if name is not None else [one for one in fitting(ranks) if one != "hosts" or hosts is not None]
    try:
        return [
            make(one, ranks, hosts=hosts, degree=degree if one in (name, "random-regular") else None, **options)
            for one in names
        ]
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _row(graph: "Graph", hosts: list[int] | None) -> "Row":
    """Degrees and messages are those of an iteration: in a graph that varies all iterations have as many."""
    now = graph.at(0)
    degrees = [len(neighbours) for neighbours in now.outward]
    crossing = None
    if hosts is not None:
        period = [_edges(graph.at(k)) for k in range(graph.period)]
        crossing = sum(hosts[i] != hosts[j] for edges in period for i, j in edges) / graph.period
    return {
        "name": graph.name,
        "degrees": [min(degrees), max(degrees)],
        "diameter": graph.diameter,
        "spectral_gap": graph.spectral_gap,
        "period": graph.period,
        "doubly_stochastic": graph.is_doubly_stochastic,
        "messages": len(_edges(now)),
        "messages_between_hosts": crossing,
        "outward": graph.outward,
    }


def _edges(graph: "Graph") -> list[tuple[int, int]]:
    return [(i, j) for i, neighbours in enumerate(graph.outward) for j in neighbours]


def _print(rows: "list[Row]", layout: str | None, flags: dict[str, Any]) -> None:
    from spardl.bench.table import Column, print_table

    columns = [
        Column("graph", "name"),
        Column("degree", "degree", "s"),
        Column("diameter", "diameter", "d"),
        Column("spectral gap", "spectral_gap", ".4f"),
        Column("period", "varies", "d"),
        Column("doubly stochastic", "doubly"),
        Column("messages/iteration", "messages", "d"),
        Column("between hosts", "messages_between_hosts", ".4g"),
    ]
    caption = "Spectral gap: 1 − |λ₂| of the weights, self-loops included; the larger, the faster models agree."
    if any(row["period"] > 1 for row in rows):
        caption += "\nWith a period: 1 − the second singular value of the weights' product over one period."
    where = "" if layout is None else f" on hosts of {layout.replace('x', ' × ')}"
    print_table(
        f"{flags['ranks']} ranks{where}, {flags['weights']} weights",
        columns,
        [row | _texts(row) for row in rows],
        caption,
    )


def _texts(row: "Row") -> "Row":
    least, most = row["degrees"]
    return {
        "degree": f"{least}" if least == most else f"{least}–{most}",
        "varies": row["period"] if row["period"] > 1 else None,
        "doubly": "yes" if row["doubly_stochastic"] else "no",
    }


def _write(path: Path, rows: "list[Row]", parameters: "Row") -> None:
    import platform

    from spardl.bench import record
    from spardl.graphs.library import nx

    facts = {"python": platform.python_version(), "numpy": np.__version__, "networkx": nx.__version__}
    record.write(path, f"spardl {shlex.join(sys.argv[1:])}", facts, parameters, rows)


def _draw(graphs: "list[Graph]", hosts: list[int] | None, path: Path) -> None:
    from spardl.bench.figure import new_figure, save

    columns = ceil(sqrt(len(graphs)))
    rows = ceil(len(graphs) / columns)
    figure = new_figure(4 * columns, 4.2 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.axis("off")
    for graph, axis in zip(graphs, axes, strict=False):
        _draw_one(graph, hosts or [0] * graph.ranks, axis)
    save(figure, path)


def _draw_one(graph: "Graph", hosts: list[int], axis: "Axes") -> None:
    """Lines where models go both ways, arrows where they go one way; dark between hosts."""
    from matplotlib.collections import LineCollection

    places = _places(graph.name, hosts)
    size = min(1.0, 16 / graph.ranks)
    width = 0.4 + 0.8 * size

    def shade(i: int, j: int) -> str:
        return "0.7" if hosts[i] == hosts[j] else "0.3"

    edges = set(_edges(graph))
    pairs = sorted((i, j) for i, j in edges if i < j and (j, i) in edges)
    shades = [shade(i, j) for i, j in pairs]
    axis.add_collection(LineCollection([places[[i, j]] for i, j in pairs], colors=shades, linewidths=width, zorder=1))
    for i, j in sorted((i, j) for i, j in edges if (j, i) not in edges):
        arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 3 + 6 * size, "mutation_scale": 3 + 7 * size}
        look = {"color": shade(i, j), "linewidth": width}
        axis.annotate("", places[j], places[i], arrowprops=arrow | look, zorder=1)
    axis.scatter(places[:, 0], places[:, 1], s=20 + 220 * size, c=[f"C{host % 10}" for host in hosts], zorder=2)
    if graph.ranks <= _MOST_NUMBERED:
        for rank, (x, y) in enumerate(places):
            axis.text(x, y, str(rank), ha="center", va="center", color="white", fontsize=4 + 5 * size, zorder=3)
    varies = f"\n(all {graph.period} iterations of a period)" if graph.period > 1 else ""
    axis.set(title=f"{graph.name}{varies}", aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))


def _places(name: str, hosts: list[int]) -> "npt.NDArray[np.float64]":
    """By rank: a place on the circle, clockwise from its top; of a double ring, on one circle within the other.

    The inner ring is turned by half a step, or the outer ring's diameters would cover it.
    """
    radii = np.ones(len(hosts))
    if name == "double-ring":
        radii[1::2] = 0.6
    angles = 2 * np.pi * np.arange(len(hosts)) / len(hosts)
    return np.stack([radii * np.sin(angles), radii * np.cos(angles)], axis=1)
