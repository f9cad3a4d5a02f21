"""How fast models spread, from who was in groups together."""

import itertools

import numpy as np
import pytest

from spardl.protocols.preduce.history import GroupHistory, default_window
from spardl.protocols.preduce.sync_graph import SyncGraph


def rho(ranks, groups):
    return SyncGraph(ranks).add_all(groups).rho


def test_the_papers_figure_4():
    pairs = list(itertools.combinations(range(3), 2))
    assert rho(3, pairs) == pytest.approx(0.5)
    assert rho(3, [pairs[0], pairs[0], pairs[1], pairs[2]]) == pytest.approx(0.625)


def test_ends_of_the_scale():
    assert rho(4, [(0, 1, 2, 3)] * 3) == pytest.approx(0)
    assert rho(4, [(0, 1), (2, 3)] * 9) == 1
    assert rho(1, []) == 0
    assert rho(2, []) == 1


def test_rho_is_of_the_mean_of_the_matrices():
    rng = np.random.default_rng(0)
    groups = [tuple(sorted(rng.choice(6, rng.integers(2, 6), replace=False))) for _ in range(30)]
    total = np.zeros((6, 6))
    for members in groups:
        matrix = np.eye(6)
        matrix[np.ix_(members, members)] = 1 / len(members)
        total += matrix
    eigenvalues = np.sort(np.abs(np.linalg.eigvals(total / 30)))
    assert rho(6, groups) == pytest.approx(eigenvalues[-2])
    np.testing.assert_allclose(SyncGraph(6).add_all(groups).mean, total / 30)


def test_the_theorems_constant():
    """ρ / (1 − ρ) + 2 √ρ / (1 − √ρ)²."""
    graph = SyncGraph(3).add_all(itertools.combinations(range(3), 2))
    assert graph.rho_bar == pytest.approx(1 + 2 * 0.5**0.5 / (1 - 0.5**0.5) ** 2)
    frozen = SyncGraph(4).add_all([(0, 1), (2, 3)])
    assert frozen.rho_bar == float("inf")
    assert frozen.told() == {"groups": 2, "rho": 1.0, "rho_bar": None}


@pytest.mark.parametrize(
    ("ranks", "group", "window"), [(4, 2, 9), (8, 3, 12), (8, 8, 3), (2, 2, 3), (1, 4, 0), (256, 3, 384)]
)
def test_default_window(ranks, group, window):
    assert default_window(ranks, group) == window


def test_components_are_of_the_last_groups_and_those_queued():
    history = GroupHistory(6, 2)
    for members in [(0, 5), (0, 1), (2, 3)]:
        history.add(members)
    parts = history.components([0, 4])
    assert parts.keys() == {0, 1, 2, 3, 4}  # the first group is forgotten, and with it rank 5
    assert parts[0] == parts[1]
    assert parts[2] == parts[3]
    assert len(set(parts.values())) == 3


def test_parts_that_meet_by_any_of_their_ranks_are_one():
    history = GroupHistory(6, 9)
    for members in [(0, 1), (2, 3), (1, 3), (4, 5)]:
        history.add(members)
    parts = history.components([])
    assert len({parts[rank] for rank in range(4)}) == 1
    assert parts[4] == parts[5] != parts[0]


def test_a_history_is_saved_and_loaded():
    history = GroupHistory(4, 5)
    for members in [(0, 1), (1, 2), (2, 3), (0, 3), (0, 1), (1, 3)]:
        history.add(members)
    other = GroupHistory(4, 5)
    other.become(GroupHistory.from_state(history.state(), 4))
    assert list(other.recent) == list(history.recent)
    assert other.graph.told() == history.graph.told()


@pytest.mark.parametrize(
    "damage",
    [
        {"recent": [[0, 4]]},
        {"recent": [[1, 0]]},
        {"recent": [[]]},
        {"recent": "01"},
        {"recent": [[True, 1]]},
        {"groups": -1},
        {"moved": [[0.0]]},
        {"moved": [[0.0] * 4] * 3 + [[float("nan")] * 4]},
        {"moved": [["0"] * 4] * 4},
    ],
)
def test_a_damaged_history_is_refused(damage):
    history = GroupHistory(4, 5)
    history.add((0, 1))
    with pytest.raises(ValueError, match="load_state_dict"):
        GroupHistory.from_state(history.state() | damage, 4)
    with pytest.raises(ValueError, match="has no"):
        GroupHistory.from_state({}, 4)
