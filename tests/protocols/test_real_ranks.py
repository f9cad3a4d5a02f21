"""Processes on real ranks. The programs assert; here they are started, under a limit that kills them."""

from pathlib import Path

import pytest
from mpi.launcher import run

pytestmark = pytest.mark.launches
PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_all_ranks_see_the_same_rounds_and_nothing_is_lost(ranks):
    run(ranks, PROGRAMS / "rounds.py")


def test_a_stopped_rank_does_not_stop_the_others():
    run(4, PROGRAMS / "stopped.py")


@pytest.mark.parametrize("ranks", [2, 5])
def test_the_same_processes_on_every_carrier(ranks):
    run(ranks, PROGRAMS / "same.py")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_groups_average_as_they_do_elsewhere(ranks):
    run(ranks, PROGRAMS / "averages.py")


@pytest.mark.parametrize("ranks", [2, 4])
def test_neighbours_blend_as_they_do_elsewhere(ranks):
    run(ranks, PROGRAMS / "neighbours.py")
