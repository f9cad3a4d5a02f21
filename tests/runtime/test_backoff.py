"""Who waits politely, and who need not."""

import os

import pytest

from spardl.runtime import backoff

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not bind to cores")


@pytest.mark.parametrize(
    ("ranks", "own", "launchers", "crowded"),
    [
        ("4", 8, 8, False),
        ("4", 2, 2, True),
        ("4", 1, 8, False),  # bound, one core each
        ("9", 1, 8, True),
        (None, 1, 8, False),  # no launcher that tells
    ],
)
def test_crowded_where_ranks_outnumber_cores(ranks, own, launchers, crowded, monkeypatch):
    monkeypatch.delenv("MPI_LOCALNRANKS", raising=False)
    monkeypatch.delenv("OMPI_COMM_WORLD_LOCAL_SIZE", raising=False)
    if ranks is not None:
        monkeypatch.setenv("MPI_LOCALNRANKS", ranks)
    masks = {0: range(own), os.getppid(): range(launchers)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: masks[process])
    assert (backoff._pace.__wrapped__() is backoff._CROWDED) == crowded


@pytest.fixture
def clock(monkeypatch):
    """What a pause did, on a clock that goes on with it alone."""
    seen, now = [], [100.0]

    def pass_time(what, seconds):
        seen.append(what)
        now[0] += seconds

    monkeypatch.setattr(backoff, "_pace", lambda: backoff._Pace(1, 0.125, 0.25, 0.5, 1.5))
    monkeypatch.setattr(backoff.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(backoff.time, "sleep", lambda seconds: pass_time(seconds, seconds))
    monkeypatch.setattr(os, "sched_yield", lambda: pass_time("yield", 0.125))
    return seen


def test_spins_then_yields_then_naps_longer_and_longer(clock):
    pause = backoff.Backoff()
    for _ in range(2):
        for _ in range(6):
            pause()
        assert clock == ["yield", "yield", 0.5, 1.0, 1.5]
        pause.reset()
        clock.clear()


def test_sleeps_by_the_bell_where_that_rings(clock, monkeypatch):
    class Bell:
        def wait(self, milliseconds, ringers):
            clock.append("bell")

    monkeypatch.setattr(backoff, "my_bell", Bell)
    pause = backoff.Backoff()
    for _ in range(4):
        pause([b"theirs"])
    assert clock == ["yield", "bell", "bell"]  # after a spin
    clock.clear()
    pause()
    assert clock == ["yield"]


def test_naps_where_there_are_no_bells(clock, monkeypatch):
    monkeypatch.setattr(backoff, "my_bell", lambda: None)
    pause = backoff.Backoff()
    for _ in range(4):
        pause([b"theirs"])
    assert clock == ["yield", "yield", 0.5]
