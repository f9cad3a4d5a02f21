"""Training on real ranks. The programs assert; here they are started, under a limit that kills them."""

import json
from pathlib import Path

import pytest
from mpi.launcher import launch, run

pytestmark = pytest.mark.launches
PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_same_weights_on_all_ranks_after_every_step(ranks):
    run(ranks, PROGRAMS / "optimizers.py")


@pytest.mark.parametrize("ranks", [3, 4, 6])
def test_law_of_conservation_through_training(ranks):
    run(ranks, PROGRAMS / "law.py")


@pytest.mark.parametrize("ranks", [3, 4])
def test_faults_reach_every_rank(ranks):
    run(ranks, PROGRAMS / "faults.py")


@pytest.mark.parametrize("ranks", [2, 4])
def test_rna(ranks):
    run(ranks, PROGRAMS / "rna.py")


def test_a_rank_that_dies_ends_rna():
    killed = launch(3, PROGRAMS / "dies.py", limit=30)
    assert killed.returncode != 0
    assert "dies" in killed.stdout
    assert "timeout" not in killed.stdout.lower(), killed.stdout  # it was not the limit that ended the job


@pytest.mark.parametrize("ranks", [3, 6])
def test_hierarchical_rna(ranks):
    run(ranks, PROGRAMS / "groups.py")


@pytest.mark.parametrize("ranks", [2, 3])
def test_ddp_hook(ranks, tmp_path):
    run(ranks, PROGRAMS / "ddp.py", tmp_path)


def test_killed_and_resumed_training(tmp_path):
    run(4, PROGRAMS / "checkpoint.py", tmp_path, "straight")
    killed = launch(4, PROGRAMS / "checkpoint.py", tmp_path, "save")
    assert killed.returncode != 0
    assert "Traceback" not in killed.stdout, killed.stdout
    run(4, PROGRAMS / "checkpoint.py", tmp_path, "resume")
    straight, resumed = (json.loads((tmp_path / f"{mode}.json").read_text()) for mode in ("straight", "resume"))
    assert straight == resumed
    for ranks in (2, 6):  # these check that the sum of what is owed is kept, and go on training
        run(ranks, PROGRAMS / "checkpoint.py", tmp_path, "resume")
