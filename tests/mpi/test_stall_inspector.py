"""The stall inspector on real ranks, one of which is stopped with SIGSTOP or comes late."""

import re
import socket

import pytest

from mpi.launcher import launch, run

pytestmark = pytest.mark.launches


@pytest.mark.parametrize(("victim", "speaker"), [(2, 0), (0, 1)])
def test_a_stopped_rank_is_named_and_then_ends_the_job(victim, speaker):
    job = launch(4, "stalled.py", "stop", victim, limit=40, python_flags=("-m", "mpi4py"))
    assert job.returncode != 0
    assert "rank done" not in job.stdout
    first = job.stdout.index(f"[printed by rank {speaker} after ")
    warning = job.stdout[:first]
    assert f"rank {victim} on host {socket.gethostname()} is missing: awaited by rank" in warning, job.stdout
    assert "in Spar-Reduce-Scatter round 1 of call 4" in warning
    assert "its last message was for Spar-Reduce-Scatter round 0 of call 4, to rank" in warning
    assert warning.count("is missing") == 1
    # Every rank waits from 0.2 s on at the latest; nobody else prints, and all but the stopped one end at the deadline.
    printed = re.findall(r"printed by rank (\d) after ([\d.]+) s", job.stdout)
    assert {int(rank) for rank, _ in printed} == {speaker}
    assert float(printed[0][1]) < 4.5  # after 1.7 s on a quiet machine, and 5.2 s are the deadline
    ended = re.findall(rf"rank (\d): PeerTimeout of \({victim},\) after ([\d.]+) s", job.stdout)
    assert {int(rank) for rank, _ in ended} == set(range(4)) - {victim}, job.stdout
    assert all(first < job.stdout.index(f"rank {rank}: PeerTimeout") for rank, _ in ended)


def test_a_rank_that_comes_late_is_named_and_all_goes_on():
    output = run(3, "stalled.py", "late", 1)
    assert f"rank 1 on host {socket.gethostname()} is missing" in output
    assert re.search(r"SparseAllreduce.reduce, call 4, went on after [\d.]+ s", output)


def test_the_first_use_of_a_communicator_tells_who_is_there(monkeypatch):
    monkeypatch.setenv("SPARDL_STALL_WARNING", "1.5")
    output = run(3, "stalled.py", "first", 1)
    said = re.findall(r"rank (\d) of 3 on host (\S+) has waited for [\d.]+ s for the others", output)
    assert sorted(said) == [(rank, socket.gethostname()) for rank in ("0", "2")], output
