"""Three pictures: time against ranks, against density, and measured against predicted."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from spardl.bench.figure import new_figure, save
from spardl.bench.results import Measurement, Setting
from spardl.bench.sizes import SIZES

WITHIN = 0.25  # the band around what was predicted
_MANY = 8  # values on an axis
_NETWORKS = {size: name for name, size in SIZES.items()}


class Style(NamedTuple):
    colour: str
    marker: str
    line: str = "-"


# The same in all pictures. Sparse ones have colours that also the colour-blind can tell apart (Okabe and Ito's), dense
# ones are grey and dashed; and every one has a marker of its own.
STYLES = {
    "spardl": Style("#D55E00", "o"),
    "oktopk": Style("#0072B2", "s"),
    "gtopk": Style("#009E73", "D"),
    "topk_dsa": Style("#CC79A7", "^"),
    "topk_a": Style("#56B4E9", "v"),
    "MPI_Allreduce": Style("#000000", "*", ":"),
    "dense_mpi": Style("#000000", "X", "--"),
    "dense_ring": Style("#555555", "P", "--"),
    "dense_rabenseifner": Style("#808080", "<", "--"),
    "dense_recursive_doubling": Style("#A5A5A5", ">", "--"),
}
_UNKNOWN = Style("#E69F00", "h")


class Picture(NamedTuple):
    """What became of a picture: so many panels, or none, and why."""

    path: Path
    panels: int
    why_not: str = ""


def draw_all(measured: Sequence[Measurement], folder: Path) -> list[Picture]:
    """Draws what the measurements allow."""
    return [
        draw_times(measured, RANKS, folder / "time_by_ranks.png"),
        draw_times(measured, DENSITY, folder / "time_by_density.png"),
        draw_predicted(measured, folder / "predicted.png"),
    ]


# -- time against something --------------------------------------------------------------------------------------------


class Against(NamedTuple):
    """What changes along an axis; panels are of settings in which the rest is the same."""

    label: str
    value: Callable[[Setting], float]
    rest: Callable[[Setting], Setting]
    title: Callable[[Setting], str]
    too_few: str
    is_log: Callable[[Sequence[float]], bool]


def _network(size: int) -> str:
    name = f"{_NETWORKS[size]}, " if size in _NETWORKS else ""
    return f"{name}n = {size:,}"


RANKS = Against(
    "ranks",
    lambda setting: setting.ranks,
    lambda setting: setting._replace(ranks=0),
    lambda setting: f"{_network(setting.size)}, density {setting.density:g}",
    "there are no results of one size, density and label for two or more numbers of ranks",
    lambda values: max(values) >= 16 * min(values),
)
DENSITY = Against(
    "density",
    lambda setting: setting.density,
    lambda setting: setting._replace(density=0),
    lambda setting: f"{_network(setting.size)}, {setting.ranks} ranks",
    "there are no results of one size, number of ranks and label for two or more densities",
    lambda values: True,
)


def draw_times(measured: Sequence[Measurement], against: Against, path: Path) -> Picture:
    """A line for every algorithm; of SparDL's numbers of teams the best one's."""
    groups = _grouped(measured, lambda one: against.rest(one.setting))
    panels = [group for group in groups if len({against.value(one.setting) for one in group}) > 1]
    if not panels:
        return Picture(path, 0, against.too_few)
    figure, axes = _panels(len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        values = sorted({against.value(one.setting) for one in panel})
        scale = "log" if against.is_log(values) else "linear"
        label = panel[0].setting.label
        axis.set(xscale=scale, yscale="log", xlabel=against.label, ylabel="ms per all-reduce")
        axis.set_title("\n".join(filter(None, (label, against.title(panel[0].setting)))), fontsize=10)
        axis.margins(0.08)
        size = 10 if len(values) <= _MANY else 7.5  # so that labels do not run into each other
        axis.set_xticks(values, [f"{value:g}" for value in values], fontsize=size)
        axis.set_xticks([], minor=True)
        _plain_numbers(axis.yaxis)
        for one in _in_order(panel):
            _draw_algorithm(axis, one, against)
    _legend(figure, axes)
    save(figure, path)
    return Picture(path, len(panels))


def _draw_algorithm(axis: Any, group: Sequence[Measurement], against: Against) -> None:
    name = group[0].algorithm
    style = STYLES.get(name, _UNKNOWN)
    teams = {one.teams for one in group}
    best = [min(same, key=lambda one: one.ms) for same in _grouped(group, lambda one: against.value(one.setting))]
    look: dict[str, Any] = {"color": style.colour, "linestyle": style.line, "marker": style.marker, "markersize": 5}
    if name == "spardl":
        look |= {"linewidth": 2.8, "markersize": 7, "zorder": 3}
    label = f"{name}, best teams" if len(teams) > 1 else name
    axis.plot([against.value(one.setting) for one in best], [one.ms for one in best], label=label, **look)
    if len(teams) == 1:
        return
    for one in best:
        where = (against.value(one.setting), one.ms)
        size = 8 if len(best) <= _MANY else 6.5
        look = {"ha": "center", "fontsize": size, "color": style.colour, "path_effects": [_white_edge()], "zorder": 4}
        axis.annotate(f"d={one.teams}", where, (0, -14), textcoords="offset points", **look)
    for number, same in enumerate(_grouped(group, lambda one: one.teams)):
        along = sorted(same, key=lambda one: against.value(one.setting))
        axis.plot(
            [against.value(one.setting) for one in along],
            [one.ms for one in along],
            ".-",
            color=style.colour,
            alpha=0.35,
            linewidth=1,
            label=f"{name}, each number of teams" if number == 0 else "_",
        )


# -- measured against predicted ----------------------------------------------------------------------------------------


def draw_predicted(measured: Sequence[Measurement], path: Path) -> Picture:
    """A panel for every label; on the diagonal are the times that were predicted right."""
    known = [one for one in measured if one.predicted_ms]
    if not known:
        return Picture(path, 0, "the results have no predictions")
    panels = _grouped(known, lambda one: one.setting.label)
    figure, axes = _panels(len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        errors = [abs(one.predicted_ms / one.ms - 1) for one in panel if one.predicted_ms]
        near = sum(error <= WITHIN for error in errors)
        title = f"median error {100 * median(errors):.0f} %, {near} of {len(errors)} within ±{100 * WITHIN:.0f} %"
        axis.set_title("\n".join(filter(None, (panel[0].setting.label, title))), fontsize=10)
        both = [ms for one in panel for ms in (one.ms, one.predicted_ms) if ms]
        ends = [min(both) / 1.5, max(both) * 1.5]
        axis.plot(ends, ends, color="#000000", linewidth=1)
        low, high = ([end / (1 + share) for end in ends] for share in (WITHIN, -WITHIN))
        axis.fill_between(ends, low, high, color="#000000", alpha=0.1, linewidth=0, label=f"±{100 * WITHIN:.0f} %")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        axis.set(xlabel="predicted, ms", ylabel="measured, ms")
        _plain_numbers(axis.xaxis)
        _plain_numbers(axis.yaxis)
        for one in _in_order(panel):
            style = STYLES.get(one[0].algorithm, _UNKNOWN)
            points = [point.predicted_ms for point in one], [point.ms for point in one]
            look = {"color": style.colour, "marker": style.marker, "alpha": 0.85, "markersize": 6}
            axis.plot(*points, linestyle="none", label=one[0].algorithm, **look)
    _legend(figure, axes)
    save(figure, path)
    return Picture(path, len(panels))


# -- what they share ---------------------------------------------------------------------------------------------------


def _grouped(measured: Iterable[Measurement], key: Callable[[Measurement], Any]) -> list[list[Measurement]]:
    """Those with equal keys together, in the order of the keys."""
    groups: dict[Any, list[Measurement]] = {}
    for one in measured:
        groups.setdefault(key(one), []).append(one)
    return [groups[name] for name in sorted(groups)]


def _in_order(panel: Sequence[Measurement]) -> list[list[Measurement]]:
    """By algorithm, in the order of the styles."""
    order = list(STYLES)
    return sorted(
        _grouped(panel, lambda one: one.algorithm),
        key=lambda group: order.index(group[0].algorithm) if group[0].algorithm in order else len(order),
    )


def _panels(count: int) -> tuple[Any, list[Any]]:
    """A figure and its axes; the last line of them may be shorter."""
    columns = math.ceil(math.sqrt(count))
    lines = math.ceil(count / columns)
    figure = new_figure(4.2 * columns + 2.2, 3.9 * lines)
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.remove()
    for axis in axes[:count]:
        axis.grid(which="major", alpha=0.3)
    return figure, axes[:count]


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    """One for all panels."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(entries.values(), entries.keys(), loc="outside right upper", frameon=False, fontsize=9)


def _white_edge() -> Any:
    """So that letters can be read on top of lines."""
    from matplotlib.patheffects import withStroke

    return withStroke(linewidth=2.5, foreground="white")


def _plain_numbers(axis: Any) -> None:
    """1, 2, 5, 10, … instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    wide = high > 1000 * low  # where 2 and 5 would run into their neighbours
    axis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
