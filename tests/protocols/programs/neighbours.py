"""Hop's processes on real ranks: the same models as elsewhere, and a stopped rank holds others up only so much."""

import os
import random
import signal
import subprocess
import time
from dataclasses import replace
from functools import partial

from mpi4py import MPI
from protocols.hop_world import N, replicas

from spardl.agreement import open_channel
from spardl.graphs import graph
from spardl.protocols.hop.settings import Settings
from spardl.runtime.group import resolve
from spardl.runtime.loopback import loopback
from spardl.runtime.network import cluster
from spardl.runtime.thread import Channels, ProcessThread
from spardl.runtime.virtual import virtual

world = MPI.COMM_WORLD
P, me = world.size, world.rank
LIMIT, STOPPED = 60, 6.0


def on_mpi(made, programs):
    """What every rank has seen."""
    group = resolve(world, LIMIT)
    channels = Channels(*(open_channel(group, dict, LIMIT, "Hop") for _ in range(3)))
    thread = ProcessThread(programs[me], channels, LIMIT, "Hop")
    thread.start()
    thread.door.drive(programs[me].training)
    thread.join()
    return world.allgather(replace(made[me], training=None))


def scenario(on, settings, count=8):
    return replicas([count] * P, random.Random(3), on, settings, limit=LIMIT, slowness=(0,))[:2]


for name in ("ring", "complete", "one-peer-exponential"):
    for order in ("serial", "parallel"):
        on, settings = graph(name, P), Settings(order=order)
        real = on_mpi(*scenario(on, settings))
        for run in (loopback, partial(virtual, network=cluster(P))):
            imagined, programs = scenario(on, settings)
            run(programs)
            assert [replica.models for replica in real] == [replica.models for replica in imagined]
        for element in range(N):
            assert sum(r.model[element] for r in real) == sum(r.moved[element] for r in real)


def stopping(training):
    """This rank stops before its first step, and goes on by itself some time later."""
    subprocess.Popen(["sh", "-c", f"sleep {STOPPED}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
    return (yield from training)


def timed(training, times, replica):
    """Notes when every iteration was entered."""
    answer = None
    while True:
        try:
            ask = training.send(answer)
        except StopIteration as stop:
            return stop.value
        times.setdefault(replica.training.iteration, time.monotonic())
        answer = yield ask


if P > 3:
    # With a backup worker the others go on to the bound that tokens set, and on from there when it is back.
    gap, times = 3, {}
    made, programs = scenario(graph("complete", P), Settings(gap, 1), count=12)
    inner = programs[me].training
    outer = stopping(inner) if me == P - 1 else timed(inner, times, made[me])
    programs[me] = replace(programs[me], training=outer)
    began = time.monotonic()
    seen = on_mpi(made, programs)
    assert all(replica.models[-1][0] >= 12 for replica in seen)
    if me < P - 1:
        assert times[gap] - began < 0.7 * STOPPED, times  # nobody has waited for it so far
        assert times[gap + 1] - began > 0.7 * STOPPED, times  # but no further
