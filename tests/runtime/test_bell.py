"""A bell wakes who sleeps, once, and never holds up who rings."""

import sys
import threading

import pytest

from spardl.runtime.bell import NAME_BYTES, Bell, my_bell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bells are sockets in Linux's abstract namespace")


def test_rung_before_is_heard_at_once_and_once():
    here, there = Bell(), Bell()
    for _ in range(3):
        here.ring(there.name)
    assert there.wait(10_000, [here.name])
    assert not there.wait(1, [here.name])
    assert not here.wait(1, [there.name])


def test_rung_in_sleep_is_heard():
    here, there = Bell(), Bell()
    ringer = threading.Timer(0.05, here.ring, [there.name])
    ringer.start()
    assert there.wait(20_000, [here.name])
    ringer.join()


def test_others_are_not_heard():
    here, there, other = Bell(), Bell(), Bell()
    other.ring(there.name)
    assert not there.wait(1, [here.name])
    other.ring(there.name)
    here.ring(there.name)
    other.ring(there.name)
    assert there.wait(10_000, [here.name])
    assert not there.wait(1, [here.name, other.name])


def test_whoever_rings_never_waits():
    here, there = Bell(), Bell()
    for _ in range(10_000):  # more than the socket holds
        here.ring(there.name)
    assert there.wait(1, [here.name])
    assert not there.wait(1, [here.name])


def test_only_bells_that_are_there_are_reached():
    here, there = Bell(), Bell()
    name = there.name
    assert len(name) == NAME_BYTES
    assert name != here.name
    assert here.reaches(name)
    del there
    assert not here.reaches(name)
    assert not here.reaches(bytes(NAME_BYTES))
    here.ring(name)  # nobody minds


def test_a_process_has_one():
    assert my_bell() is my_bell()


def test_several_threads_may_listen_at_once():
    here, there = Bell(), Bell()
    gate, heard = threading.Barrier(3), []

    def listen():
        gate.wait()
        heard.append(there.wait(20_000, [here.name]))

    threads = [threading.Thread(target=listen) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.wait()
    while len(heard) < 2:  # one ring wakes one or both
        here.ring(there.name)
    for thread in threads:
        thread.join()
    assert any(heard)
