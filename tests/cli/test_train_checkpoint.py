"""``spardl train --checkpoint``: stopped by signals and started again, it ends with the bits of one that was not."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from disk import full_after
from mpi.launcher import mpiexec, run_job, run_together

from spardl.cli import main

OPTIONS = ["train", "--epochs", "3", "--density", "0.02"]
LIMIT = 120  # seconds
# Every rank tells its process id in a file of its own, and becomes what follows.
NOTE_ID = ["sh", "-c", 'echo > "$0/$$"; exec "$@"']


def stop(folder, ids, number, after, *, everyone):
    """Trains on two ranks until the checkpoint is newer than ``after``, and signals mpiexec or one rank."""
    ids.mkdir()
    slow = [*OPTIONS, "--checkpoint", str(folder), "--delay", "uniform:60:70ms"]
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = subprocess.Popen(
        [*mpiexec(), "-n", "2", *NOTE_ID, str(ids), sys.executable, "-m", "spardl", *slow],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment | {"OMP_NUM_THREADS": "1", "MPIEXEC_TIMEOUT": str(LIMIT)},
        start_new_session=True,
    )
    with job:
        try:
            ends = time.monotonic() + LIMIT
            while not (folder / "spardl.pt").exists() or (folder / "spardl.pt").stat().st_mtime <= after:
                assert time.monotonic() < ends, "an epoch takes too long"
                assert job.poll() is None, job.stdout.read()
                time.sleep(0.05)
            os.kill(job.pid if everyone else int(min(ids.iterdir()).name), number)
            output, _ = job.communicate(timeout=LIMIT)
        except BaseException:
            os.killpg(job.pid, signal.SIGKILL)
            raise
    assert job.returncode == os.EX_TEMPFAIL, output
    return int(re.search(r"stopped after step (\d+), ", output)[1])


@pytest.mark.launches
def test_stopped_twice_and_resumed_it_is_the_same_training(tmp_path):
    folder = tmp_path / "saved"
    first = stop(folder, tmp_path / "first", signal.SIGTERM, 0, everyone=False)  # one rank's signal is enough
    saved = (folder / "spardl.pt").stat().st_mtime
    second = stop(folder, tmp_path / "second", signal.SIGUSR1, saved, everyone=True)
    assert 22 < first < second < 66
    shutil.copytree(folder, tmp_path / "copy")
    resume, again, straight = (
        [*OPTIONS, "--checkpoint", str(where), "--json", f"{where}.json"]
        for where in (folder, tmp_path / "copy", tmp_path / "straight")
    )
    output, _ = run_together(2, ["-m", "spardl", *resume], ["-m", "spardl", *straight], limit=LIMIT)
    assert f"goes on after step {second}, " in output
    resumed, straight = (
        json.loads((tmp_path / f"{name}.json").read_text())["runs"]["spardl"] for name in ("saved", "straight")
    )
    for same in ("weights", "accuracy", "loss", "steps", "bytes_sent", "dense_bytes"):
        assert resumed[same] == straight[same], same
    assert [loss for _, loss in resumed["history"]] == [loss for _, loss in straight["history"]]
    assert resumed["density"] == pytest.approx(straight["density"])

    alone = CliRunner().invoke(main, again)  # on another number of ranks: one
    assert f"goes on after step {second}, " in alone.output
    assert json.loads((tmp_path / "copy.json").read_text())["runs"]["spardl"]["steps"] == 66


@pytest.fixture(autouse=True)
def _own_signals():
    """The command leaves them ignored, which is for a process that ends."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def train(*arguments):
    return CliRunner().invoke(main, ["train", "--epochs", "1", *map(str, arguments)])


def test_a_finished_training_is_not_repeated(tmp_path):
    path = tmp_path / "once.json"
    assert train("--checkpoint", tmp_path, "--json", path).exit_code == 0
    once = json.loads(path.read_text())
    again = train("--checkpoint", tmp_path, "--json", path)
    assert "goes on after step 22, 100% of the training" in again.output
    assert json.loads(path.read_text())["runs"]["spardl"]["weights"] == once["runs"]["spardl"]["weights"]


def test_what_does_not_fit(tmp_path):
    assert train("--checkpoint", tmp_path).exit_code == 0
    other = train("--checkpoint", tmp_path, "--lr", 0.2)
    assert other.exit_code == 1
    assert "spardl.pt is of a training with lr 0.1, not 0.2: give the same options" in other.output
    (tmp_path / "spardl.pt").write_text("nonsense")
    broken = train("--checkpoint", tmp_path)
    assert broken.exit_code == 1
    assert "spardl.pt cannot be read" in broken.output
    (tmp_path / "file").touch()
    no_folder = train("--checkpoint", tmp_path / "file" / "below")
    assert no_folder.exit_code == 1
    assert "cannot be saved" in no_folder.output


def test_not_for_ranks_that_are_not_in_step(tmp_path):
    refused = train("--checkpoint", tmp_path, "--sync", "rna")
    assert refused.exit_code == 2
    assert "the ranks of --sync rna are not at the same step at any time; take spardl or dense" in refused.output


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of a finished training."""
    assert train("--checkpoint", tmp_path).exit_code == 0
    return tmp_path / "spardl.pt"


def test_a_damaged_checkpoint_is_refused(saved):
    good = saved.read_bytes()
    middle = len(good) // 2  # among the weights
    flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    for damaged in (flipped, good[:-1], good[:-8], good + b"\0", b""):
        saved.write_bytes(damaged)
        refused = train("--checkpoint", saved.parent)
        assert refused.exit_code == 1
        assert "spardl.pt cannot be read, take it away to start a new training: its checksum" in refused.output
        assert saved.read_bytes() == damaged


def test_a_full_disk_leaves_the_checkpoint_of_before(saved):
    good = saved.read_bytes()
    saved.rename(saved.parent / "kept")
    with full_after(len(good) // 2):
        full = train("--checkpoint", saved.parent)
    assert full.exit_code == 1
    assert "spardl.pt cannot be saved: [Errno 27] File too large" in full.output  # as of a disk: No space left
    assert [file.name for file in saved.parent.iterdir()] == ["kept"]


def test_file_and_folder_are_on_the_disk_before_training_goes_on(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    assert train("--checkpoint", tmp_path).exit_code == 0
    assert synced == [str(tmp_path / "spardl.new"), str(tmp_path)]


@pytest.mark.launches
def test_a_full_disk_on_two_ranks(tmp_path):
    (tmp_path / "spardl.new").symlink_to("/dev/full")
    command = [sys.executable, "-m", "spardl", *OPTIONS, "--checkpoint", str(tmp_path)]
    full = run_job(2, command, limit=LIMIT)
    assert full.returncode == 1, full.stdout
    assert full.stdout.count("spardl.pt cannot be saved: [Errno 28] No space left on device") == 1, full.stdout
    assert "Traceback" not in full.stdout, full.stdout
    assert list(tmp_path.iterdir()) == []
