"""Every script in slurm/, submitted unchanged to a real SLURM, and what it leaves behind."""

import json
import re
from types import SimpleNamespace

import pytest

from slurm.user import OPEN_MPI

pytestmark = [pytest.mark.launches, pytest.mark.slurm]
TWO = ("--nodes=2",)
TRAINING = ("--epochs", "4", "--density", "0.02")


@pytest.fixture(scope="module")
def jobs(slurm):
    """All at once, so that one is at work while another one waits."""
    # 88 steps of 0.7 s. It is warned two minutes before the third is over, or up to a minute earlier, as SLURM has it:
    # so after training has begun and before it is done.
    slow = ("--delay", "uniform:700:710ms")
    sweep = {"DENSITIES": "0.01 0.1", "TEAMS": "1 2", "RANKS": "2"}
    failing = {"DENSITIES": "0.1", "TEAMS": "1 2", "RANKS": "1 3"}  # two teams fit neither
    other = {"VIRTUAL_ENV": str(OPEN_MPI)}
    return SimpleNamespace(
        measure=slurm.submit("measure.sbatch", "--short"),  # first: it wants all nodes for itself
        resume=slurm.submit("resume.sbatch", *TRAINING, *slow, options=(*TWO, "--time=3")),
        train=slurm.submit("train.sbatch", *TRAINING, "--sync", "dense", "--sync", "spardl", options=TWO),
        mpiexec=slurm.submit("train.sbatch", *TRAINING, options=TWO, LAUNCHER="mpiexec"),
        pmix=slurm.submit("measure.sbatch", "--short", options=TWO, LAUNCHER="pmix", **other),
        open_mpiexec=slurm.submit("measure.sbatch", "--short", options=TWO, LAUNCHER="mpiexec", **other),
        sweep=slurm.submit("sweep.sbatch", "--epochs", "1", options=(*TWO, "--array=3-4"), **sweep),
        failing_sweep=slurm.submit("sweep.sbatch", "--epochs", "1", options=(*TWO, "--array=0"), **failing),
    )


def runs(slurm, name):
    record = json.loads((slurm.folder / f"{name}.json").read_text())
    assert record["ranks"] == 2
    return record["runs"]


@pytest.mark.parametrize(("name", "ranks"), [("measure", 4), ("pmix", 2), ("open_mpiexec", 2)])
def test_measure(slurm, jobs, name, ranks):
    job = getattr(jobs, name)
    assert "all ranks at once" in slurm.run(job)
    profile = json.loads((slurm.folder / f"measure-{job}.json").read_text())
    assert profile["ranks"] == ranks
    for line in ("exchange", "ping", "allreduce"):
        assert profile[line]["alpha"] > 0
        assert profile[line]["beta"] >= 0
    assert min(seconds for kernel, seconds in profile["gamma"].items() if kernel != "round") > 0


def test_train(slurm, jobs):
    log = slurm.run(jobs.train)
    assert "digits, 2 ranks" in log
    both = runs(slurm, f"train-{jobs.train}")
    assert both.keys() == {"dense", "spardl"}
    for run in both.values():
        assert run["same_bits"]
        assert run["accuracy"] > 0.85
        assert run["steps"] == 88
    assert both["dense"]["bytes_sent"] > 20 * both["spardl"]["bytes_sent"]


def test_mpiexec_trains_the_same_weights(slurm, jobs):
    slurm.run(jobs.train)
    slurm.run(jobs.mpiexec)
    through_srun, through_mpiexec = (runs(slurm, f"train-{job}")["spardl"] for job in (jobs.train, jobs.mpiexec))
    assert through_mpiexec["weights"] == through_srun["weights"]


def test_sweep_gathers_one_table(slurm, jobs):
    log = slurm.run(jobs.sweep)
    results = slurm.folder / f"sweep-{jobs.sweep}"
    rows = json.loads((results / "table.json").read_text())
    settings = [(row["ranks"], row["teams"], row["density"]) for row in rows]
    assert settings == [(2, 1, 0.01), (2, 1, 0.1), (2, 2, 0.01), (2, 2, 0.1)]
    assert all(row["same_bits"] and row["accuracy"] > 0.2 for row in rows)
    assert len({row["bytes_sent"] for row in rows}) == 4
    table = (results / "table.txt").read_text()
    assert table.count("│") == 9 * len(rows)  # of eight columns
    assert table.strip() in log
    settings_of_task = [
        re.findall(r"density .*, . teams, . ranks", path.read_text())
        for path in slurm.folder.glob(f"sweep-{jobs.sweep}-*.log")
    ]
    assert [len(of_one) for of_one in settings_of_task] == [2, 2]


def test_resumed_run_is_the_uninterrupted_one(slurm, jobs):
    """Warned by SLURM before its time was over, it saved, put itself back, and went on where it was."""
    log = slurm.run(jobs.resume)
    restarts = int(re.search(r"Restarts=(\d+)", slurm.call("scontrol", "show", "job", jobs.resume))[1])
    assert restarts >= 1
    assert log.count("ended with 75, to be started again") >= 1
    stopped = re.findall(r"stopped after step (\d+)", log)
    assert 0 < int(stopped[0]) < 88
    assert set(stopped) <= set(re.findall(r"goes on after step (\d+)", log))
    slurm.run(jobs.train)
    straight, resumed = runs(slurm, f"train-{jobs.train}")["spardl"], runs(slurm, f"resume-{jobs.resume}")["spardl"]
    for same in ("weights", "accuracy", "loss", "steps", "bytes_sent"):
        assert resumed[same] == straight[same], same


def test_an_error_is_not_repeated(slurm):
    """Only what was saved is started again."""
    job = slurm.submit("resume.sbatch", "--epochs", "none", options=TWO)
    shown = slurm.wait(job)
    assert "JobState=FAILED" in shown
    assert "Restarts=0" in shown
    assert "'none' is not a valid integer" in slurm.log(job)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LAUNCHER": "magic"}, "site.sh: LAUNCHER must be pmi2, pmix or mpiexec, got 'magic'"),
        ({"VIRTUAL_ENV": "/nowhere", "PATH": "/usr/bin:/bin"}, "site.sh: no spardl in '/nowhere' nor on the PATH"),
    ],
)
def test_wrong_settings(slurm, settings, words):
    job = slurm.submit("measure.sbatch", options=("--nodes=1",), **settings)
    assert "JobState=FAILED" in slurm.wait(job)
    assert words in slurm.log(job)


def test_a_setting_that_fails_is_in_the_table(slurm, jobs):
    """More ranks than were asked for: the others are told, and the job fails."""
    assert "JobState=FAILED" in slurm.wait(jobs.failing_sweep)
    done, failed = json.loads((slurm.folder / f"sweep-{jobs.failing_sweep}" / "table.json").read_text())
    assert done["ranks"] == 1
    assert failed == {"remark": "density0.1-teams1-ranks3 failed, see the logs"}
