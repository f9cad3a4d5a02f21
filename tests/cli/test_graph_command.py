"""``spardl graph``: tables of what fits, JSON, pictures with hosts in their colours, and usage errors."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib import colors, image

from spardl.cli import main
from spardl.graphs import NAMES

BACKGROUND = 1.0


def run(*flags):
    return CliRunner().invoke(main, ["graph", *map(str, flags)])


def shown(*flags):
    """The table's cells, by the name of the graph."""
    result = run(*flags)
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in result.output.splitlines() if "│" in line]
    return {name: cells for name, *cells in rows}


def test_all_that_fit():
    assert list(shown("--ranks", 8)) == [name for name in NAMES if name != "hosts"]
    assert list(shown("--hosts", "2x4")) == list(NAMES)
    assert not {"ring-based", "double-ring", "hypercube", "torus"} & shown("--ranks", 7).keys()


def test_what_is_told():
    table = shown("--ranks", 8)
    assert table["ring-based"] == ["3", "2", "0.5000", "", "yes", "24"]
    assert table["one-peer-exponential"] == ["1", "3", "1.0000", "3", "yes", "8"]
    assert table["star"][0] == "1–7"
    assert shown("star", "--ranks", 8, "--weights", "uniform")["star"][-2] == "no"


def test_one_alone_and_how_many_messages_leave_a_host():
    table = shown("double-ring", "--ranks", 16, "--hosts", "4x4")
    assert table == {"double-ring": ["4", "3", "0.4000", "yes", "64", "32"]}
    assert shown("hosts", "--hosts", "2,2,4")["hosts"][-1] == "6"


def test_one_rank():
    assert all(cells[:2] == ["0", "0"] for cells in shown("--ranks", 1).values())


def test_help_names_all_graphs():
    words = run("--help").output.replace(",", " ").replace(".", " ").split()
    assert set(NAMES) <= set(words)


def test_json(tmp_path):
    path = tmp_path / "graphs.json"
    shown("--ranks", 6, "--degree", 4, "--seed", 1, "--json", path)
    record = json.loads(path.read_text())
    assert record["parameters"]["ranks"] == 6
    assert record["machine"].keys() == {"python", "numpy", "networkx"}
    rows = {row["name"]: row for row in record["rows"]}
    assert rows["random-regular"]["degrees"] == [4, 4]
    assert rows["ring"]["outward"][0] == [1, 5]
    assert rows["one-peer-exponential"]["spectral_gap"] == pytest.approx(1 - 0.217, abs=5e-4)


@pytest.mark.parametrize(
    "flags", [["double-ring", "--hosts", "2x4"], ["--hosts", "2x4"], ["--ranks", 1], ["--ranks", 70]]
)
def test_pictures(flags, tmp_path):
    path = tmp_path / "pictures" / "graph.png"
    shown(*flags, "--plot", path)
    pixels = image.imread(path)[..., :3]
    assert (pixels != BACKGROUND).any()
    hosts = 2 if "--hosts" in flags else 1
    found = [np.isclose(pixels, colors.to_rgb(f"C{host}"), atol=0.01).all(axis=-1).any() for host in range(3)]
    assert found == [host < hosts for host in range(3)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["ring-based", "--ranks", 7], "graph: ring-based: expected an even number of ranks, got 7; 6 and 8 would do"),
        (["rings", "--ranks", 8], "graph: expected one of ring, ring-based"),
        (["hosts", "--ranks", 8], "graph: hosts: expected hosts="),
        (["ring", "--ranks", 8, "--degree", 3], "graph: ring: expected no degree"),
        (["--ranks", 8, "--degree", 9], "graph: degree: expected 2 to 7, got 9"),
        (["--ranks", 7, "--hosts", "2x4"], "--hosts has 8 ranks, and --ranks says 7"),
        (["--hosts", "2y4"], "--hosts: expected hosts and ranks on each"),
        (["--hosts", "2x0"], "--hosts: expected hosts and ranks on each"),
        (["--hosts", "0x2"], "--hosts: expected hosts and ranks on each"),
        ([], "expected --ranks or --hosts"),
        (["--ranks", 0], "--ranks"),
        (["--ranks", 4, "--weights", "equal"], "--weights"),
    ],
)
def test_usage_errors(flags, message):
    result = run(*flags)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_files_that_cannot_be_written(tmp_path):
    for flags in (["--plot", tmp_path / "graph.text"], ["--json", tmp_path / "missing" / "graph.json"]):
        result = run("ring", "--ranks", 4, *flags)
        assert result.exit_code == 1
        assert "graph." in result.output
