"""What MPI's own errors are made of, and whether a process of this host runs."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

from mpi4py import MPI

from spardl import PeerError, PeerTimeout
from spardl.errors import from_notice, says_gone, to_notice
from spardl.runtime import failure
from spardl.runtime.failure import as_peer_error
from spardl.runtime.neighbour import NOBODY, Process, State, exists, state, this_process


def comm(failed):
    """A communicator of four ranks, of which MPI says that one has failed."""
    everyone = SimpleNamespace(size=4, Free=lambda: None)
    gone = SimpleNamespace(size=1, Free=lambda: None, Translate_ranks=lambda ranks, others: [failed])
    return SimpleNamespace(Get_group=lambda: everyone, Get_failed=lambda: gone)


class SomeGroup:
    def __init__(self, **states):
        self.comm, self.ranks = comm(failed=3), (5, 6, 7, 8)
        self._states = {int(at.removeprefix("at")): state for at, state in states.items()}

    def neighbours(self):
        return self._states


def test_a_process_that_mpi_says_has_failed_is_named(monkeypatch):
    monkeypatch.setattr(failure, "_SAYS_GONE", {MPI.ERR_OTHER})  # not every MPI has a code for it
    error = as_peer_error(MPI.Exception(MPI.ERR_OTHER), SomeGroup(), "reduce")
    assert isinstance(error, PeerError)
    assert error.ranks == (3,)
    assert says_gone(error)
    assert "the process of rank 3 is stopped or dead" in str(error)


def test_any_other_error_of_mpi_names_who_is_seen_dead_and_else_nobody():
    error = as_peer_error(MPI.Exception(MPI.ERR_OTHER), SomeGroup(at1=State.GONE, at2=State.RUNS), "reduce")
    assert error.ranks == (6,)
    error = as_peer_error(MPI.Exception(MPI.ERR_OTHER), SomeGroup(at2=State.RUNS), "reduce")
    assert error.ranks == ()
    assert "may be gone" in str(error)
    assert says_gone(error)


def test_what_is_told_of_a_lost_rank_blames_that_one_and_not_who_tells():
    for error in (PeerTimeout("rank 2 did not answer", ranks=(2,)), PeerError("dead", ranks=(2, 3), gone=True)):
        told = from_notice(to_notice(error), sender=1)
        assert (type(told), str(told), told.ranks) == (type(error), str(error), error.ranks)
        assert says_gone(told)
    told = from_notice(to_notice(KeyError("x")), sender=1)
    assert isinstance(told, PeerError)
    assert told.ranks == (1,)
    assert not says_gone(told)


def test_a_notice_that_cannot_be_read_is_an_error_of_its_sender():
    for notice in (b"", b"\xff", b"[]", b"{}", b'{"type": "PeerTimeout", "text": ""}', b'{"type": 5}'):
        told = from_notice(notice, sender=4)
        assert isinstance(told, PeerError)
        assert told.ranks == (4,)


def test_processes_of_this_host():
    me = this_process()
    assert me.number == os.getpid()
    assert exists(me)
    assert state(me) is State.RUNS
    assert state(Process(me.number, me.began + 1)) is State.GONE, "the number is another's by now"
    assert state(NOBODY) is State.UNKNOWN
    code = "from spardl.runtime.neighbour import this_process; print(*this_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        other = Process(*map(int, child.stdout.readline().split()))
        assert exists(other)
        assert state(other) is State.RUNS
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert state(other) is State.GONE
        child.kill()
        child.wait()
    assert state(other) is State.GONE
