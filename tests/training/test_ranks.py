"""Training on real ranks. The programs assert; here they are started, under a limit that kills them."""

import json
from pathlib import Path

import pytest
from mpi.launcher import launch, run

pytestmark = pytest.mark.launches
PROGRAMS = Path(__file__).parent / "programs"


# optimizers: the same weights on all ranks after every step. law: of conservation. faults: they reach every rank.
# rna: whoever is ready takes part. groups: the same in groups.
@pytest.mark.parametrize(
    ("ranks", "programs"),
    [
        (2, ["optimizers", "rna"]),
        (3, ["optimizers", "law", "groups", "faults"]),
        (4, ["optimizers", "law", "rna", "faults"]),
        (6, ["law", "groups"]),
    ],
)
def test_programs(ranks, programs):
    run(ranks, PROGRAMS / "together.py", *programs, parts=len(programs), limit=180)


def test_a_rank_that_dies_ends_rna():
    killed = launch(3, PROGRAMS / "dies.py", limit=30)
    assert killed.returncode != 0
    assert "dies" in killed.stdout
    assert "timeout" not in killed.stdout.lower(), killed.stdout  # it was not the limit that ended the job


@pytest.mark.parametrize("ranks", [2, 3])
def test_ddp_hook(ranks, tmp_path):
    run(ranks, PROGRAMS / "ddp.py", tmp_path)


def test_killed_and_resumed_training(tmp_path):
    run(3, PROGRAMS / "checkpoint.py", tmp_path, "straight")
    killed = launch(3, PROGRAMS / "checkpoint.py", tmp_path, "save")
    assert killed.returncode != 0
    assert "Traceback" not in killed.stdout, killed.stdout
    run(3, PROGRAMS / "checkpoint.py", tmp_path, "resume")
    straight, resumed = (json.loads((tmp_path / f"{mode}.json").read_text()) for mode in ("straight", "resume"))
    assert straight == resumed
    for ranks in (2, 4):  # these check that the sum of what is owed is kept, and go on training
        run(ranks, PROGRAMS / "checkpoint.py", tmp_path, "resume")
