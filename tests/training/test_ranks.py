"""Training on real ranks. The programs assert; here they are started, under a limit that kills them."""

import json
from pathlib import Path

import pytest
from mpi.launcher import launch, run_together

pytestmark = pytest.mark.launches
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoint of three ranks, which were killed after it."""
    folder = tmp_path_factory.mktemp("checkpoint")
    killed = launch(3, PROGRAMS / "checkpoint.py", folder, "save")
    assert killed.returncode != 0
    assert "Traceback" not in killed.stdout, killed.stdout
    return folder


# optimizers: the same weights on all ranks after every step. law: of conservation. faults: they reach every rank.
# replicas: those that differ are found. rna: whoever is ready takes part. groups: the same in groups. preduce:
# whoever is ready averages models. hop: neighbours do. ddp: the hook.
# resume: what was saved goes on, and the sum of what is owed is kept. damaged: states that are refused. straight: the
# same without having been killed.
@pytest.mark.parametrize(
    ("ranks", "programs"),
    [
        (2, ["resume", "damaged", "optimizers", "replicas", "rna", "preduce", "hop", "ddp"]),
        (3, ["resume", "straight", "optimizers", "law", "groups", "faults", "replicas", "ddp"]),
        (4, ["resume", "optimizers", "law", "rna", "faults", "preduce", "hop"]),
        (6, ["law", "groups", "preduce"]),
    ],
)
def test_programs(ranks, programs, saved, tmp_path):
    special = {"ddp": ["ddp.py", tmp_path]} | {m: ["checkpoint.py", saved, m] for m in ("resume", "straight")}
    commands = [special.get(name, [f"{name}.py"]) for name in programs]
    run_together(ranks, *([PROGRAMS / program, *arguments] for program, *arguments in commands), limit=180)
    if "straight" in programs:
        straight, resumed = (json.loads((saved / f"{mode}.json").read_text()) for mode in ("straight", "resume"))
        assert straight == resumed


@pytest.mark.parametrize("sync", ["rna", "preduce", "hop", "gossip"])
def test_a_rank_that_dies_ends_training(sync):
    killed = launch(3, PROGRAMS / "dies.py", sync, limit=30)
    assert killed.returncode != 0
    assert "dies" in killed.stdout
    assert "timeout" not in killed.stdout.lower(), killed.stdout  # it was not the limit that ended the job
