"""Signals on one rank; among several, tests/cli/test_train_checkpoint.py."""

import os
import signal
import threading

import pytest
from mpi4py import MPI

import spardl.torch as spt


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_is_told_and_stays(number):
    before = signal.getsignal(number)
    with spt.StopSignals(MPI.COMM_SELF) as stop:
        assert not stop.asked()
        os.kill(os.getpid(), number)
        assert stop.asked()
        assert stop.asked()
    assert signal.getsignal(number) is before


def test_a_signal_that_came_before_is_told():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # this thread: others do not block it
    with spt.StopSignals(MPI.COMM_SELF) as stop:
        assert stop.asked()


def test_other_signals_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)
    with spt.StopSignals(MPI.COMM_SELF, [signal.SIGUSR2]) as stop:
        assert signal.getsignal(signal.SIGTERM) is before
        os.kill(os.getpid(), signal.SIGUSR2)
        assert stop.asked()
