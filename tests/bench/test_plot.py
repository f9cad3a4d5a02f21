"""Pictures of made-up results: as many as they allow, with the right panels and lines."""

import json
import sys

import pytest
from click.testing import CliRunner

from spardl.bench import figure, plot
from spardl.bench.results import Measurement, Setting, load
from spardl.cli import main


def measurement(algorithm="spardl", teams=1, ms=1.0, predicted=None, *, ranks=2, density=0.01, size=1000, label=""):
    return Measurement(Setting(label, size, density, ranks), algorithm, teams, ms, predicted)


def results_file(path, ranks, *, densities=(0.01,), label="", predicted=True):
    rows = [{"size": 1000, "density": density, "algorithm": "MPI_Allreduce", "time_ms": 9.0} for density in densities]
    for density in densities:
        for algorithm, teams, ms in (("spardl", 1, 2.0), ("spardl", 2, 1.5), ("dense_ring", 1, 8.0)):
            row = {"size": 1000, "density": density, "algorithm": algorithm, "teams": teams, "time_ms": ms * ranks}
            rows.append(row | ({"predicted_ms": 1.1 * ms * ranks} if predicted else {}))
    path.write_text(json.dumps({"label": label, "ranks": ranks, "rows": rows}))
    return path


@pytest.fixture
def figures(monkeypatch):
    """What was drawn, instead of files."""
    kept = {}
    monkeypatch.setattr(plot, "save", lambda drawn, path: kept.__setitem__(path.name, drawn))
    return kept


def lines(axis):
    return {line.get_label(): line for line in axis.lines}


# -- reading -----------------------------------------------------------------------------------------------------------


def test_results_of_several_runs_are_merged(tmp_path):
    one, same, other = (
        results_file(tmp_path / f"{name}.json", ranks, label=label)
        for name, ranks, label in (("one", 2, "a"), ("same", 2, "a"), ("other", 4, "a"))
    )
    told = json.loads(same.read_text())
    for row in told["rows"]:
        row["time_ms"] *= 3
        row.pop("predicted_ms", None)
    same.write_text(json.dumps(told))
    found = load([one, same, other])
    assert len(found) == 8
    ring = next(m for m in found if m.algorithm == "dense_ring" and m.setting.ranks == 2)
    assert ring.ms == (16 + 48) / 2
    assert ring.predicted_ms == pytest.approx(17.6)  # only one of them has it
    assert ring.setting == Setting("a", 1000, 0.01, 2)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"label": "", "ranks": 2, "rows": [{}]}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json was not written by `spardl bench`"):
        load([path])


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_a_panel_for_each_size_density_and_label_with_several_ranks(figures, tmp_path):
    measured = [
        measurement(name, ranks=ranks, size=size, ms=ranks, label=label)
        for name in ("spardl", "oktopk", "MPI_Allreduce")
        for size, label in ((1000, "slow"), (269_722, "slow"), (269_722, "fast"))
        for ranks in (2, 4, 6)
    ]
    measured.append(measurement(density=0.5))  # of two ranks only
    picture = plot.draw_times(measured, plot.RANKS, tmp_path / "x.png")
    assert (picture.panels, picture.why_not) == (3, "")
    axes = figures["x.png"].axes
    assert [axis.get_title() for axis in axes] == [
        "fast\nresnet20, n = 269,722, density 0.01",
        "slow\nn = 1,000, density 0.01",
        "slow\nresnet20, n = 269,722, density 0.01",
    ]
    assert set(lines(axes[0])) == {"spardl", "oktopk", "MPI_Allreduce"}
    assert list(lines(axes[0])["spardl"].get_xdata()) == [2, 4, 6]
    assert [tick.get_text() for tick in axes[0].get_xticklabels()] == ["2", "4", "6"]


def test_the_best_number_of_teams_stands_out(figures, tmp_path):
    times = {(4, 1): 3.0, (4, 2): 2.0, (6, 1): 4.0, (6, 2): 5.0, (6, 3): 6.0}
    measured = [measurement(teams=teams, ranks=ranks, ms=ms) for (ranks, teams), ms in times.items()]
    plot.draw_times(measured, plot.RANKS, tmp_path / "x.png")
    (axis,) = figures["x.png"].axes
    drawn = lines(axis)
    best, others = drawn["spardl, best teams"], drawn["spardl, each number of teams"]
    assert list(best.get_ydata()) == [2, 4]
    assert best.get_linewidth() > 2 * others.get_linewidth()
    assert {text.get_text() for text in axis.texts} == {"d=2", "d=1"}


def test_time_against_density(figures, tmp_path):
    measured = [measurement(density=density, ms=100 * density) for density in (0.1, 0.001, 0.01)]
    picture = plot.draw_times(measured, plot.DENSITY, tmp_path / "x.png")
    assert picture.panels == 1
    (axis,) = figures["x.png"].axes
    assert axis.get_title() == "n = 1,000, 2 ranks"
    assert list(lines(axis)["spardl"].get_xdata()) == [0.001, 0.01, 0.1]


def test_measured_against_predicted(figures, tmp_path):
    pairs = [(1.0, 1.1), (2.0, 2.4), (4.0, 8.0)]
    measured = [measurement(ms=ms, predicted=predicted, size=i + 1) for i, (ms, predicted) in enumerate(pairs)]
    picture = plot.draw_predicted([*measured, measurement("gtopk")], tmp_path / "x.png")
    assert picture.panels == 1
    (axis,) = figures["x.png"].axes
    assert axis.get_title() == "median error 20 %, 2 of 3 within ±25 %"
    assert axis.get_xlim() == axis.get_ylim()
    assert "gtopk" not in lines(axis)
    assert list(lines(axis)["spardl"].get_xdata()) == [1.1, 2.4, 8.0]


def test_algorithms_look_the_same_in_all_pictures_and_different_from_each_other(figures, tmp_path):
    names = [*plot.STYLES, "brand_new"]
    measured = [
        measurement(name, ranks=ranks, density=density, ms=1.0, predicted=1.0)
        for name in names
        for ranks in (2, 4)
        for density in (0.1, 0.01)
    ]
    assert [picture.panels for picture in plot.draw_all(measured, tmp_path)] == [2, 2, 1]
    looks = [
        {name: (lines(axis)[name].get_color(), lines(axis)[name].get_marker()) for name in names}
        for drawn in figures.values()
        for axis in drawn.axes
    ]
    assert len(looks) == 5
    assert all(look == looks[0] for look in looks)
    assert len(set(looks[0].values())) == len(names)


# -- the command -------------------------------------------------------------------------------------------------------


def test_command_draws_what_it_can_and_says_what_not(tmp_path):
    two = results_file(tmp_path / "two.json", 2)
    folder = tmp_path / "new" / "pictures"
    done = CliRunner().invoke(main, ["bench", "plot", str(two), "--output", str(folder)])
    assert done.exit_code == 0, done.output
    assert [path.name for path in folder.iterdir()] == ["predicted.png"]
    assert f"{folder / 'predicted.png'}: 1 panel\n" in done.output
    assert "time_by_ranks.png not drawn: there are no results of one size, density and label" in done.output
    assert "time_by_density.png not drawn: there are no results of one size, number of ranks" in done.output


def test_command_draws_all(tmp_path):
    files = [
        str(results_file(tmp_path / f"{ranks}.json", ranks, densities=(0.01, 0.1), predicted=False)) for ranks in (2, 4)
    ]
    done = CliRunner().invoke(main, ["bench", "plot", *files, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for name in ("time_by_ranks.png", "time_by_density.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert f"{name}: 2 panels" in done.output
    assert "predicted.png not drawn: the results have no predictions" in done.output


def test_command_without_matplotlib_or_with_other_files(tmp_path, monkeypatch):
    other = tmp_path / "other.json"
    other.write_text("{}")
    done = CliRunner().invoke(main, ["bench", "plot", str(other)])
    assert done.exit_code == 1
    assert "was not written by `spardl bench`" in done.output
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        figure.new_figure(1, 1)
    results = str(results_file(tmp_path / "two.json", 2))
    done = CliRunner().invoke(main, ["bench", "plot", results, "--output", str(tmp_path)])
    assert done.exit_code == 1
    assert "Error: pictures need matplotlib: pip install matplotlib" in done.output
