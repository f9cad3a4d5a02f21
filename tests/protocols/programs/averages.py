"""Partial Reduce's processes on real ranks: the same averages as elsewhere, and a stopped rank is left out."""

import os
import random
import signal
import subprocess
from dataclasses import replace
from functools import partial

from mpi4py import MPI
from protocols.preduce_world import N, replicas

from spardl.agreement import open_channel
from spardl.protocols.preduce.settings import Settings
from spardl.runtime.group import resolve
from spardl.runtime.loopback import loopback
from spardl.runtime.network import cluster
from spardl.runtime.thread import Channels, ProcessThread
from spardl.runtime.virtual import virtual

world = MPI.COMM_WORLD
P, me = world.size, world.rank
LIMIT, STEPS, STOPPED = 60, 6, 3.0


def scenario(settings, **options):
    return replicas([STEPS] * P, random.Random(3), settings, limit=LIMIT, slowness=(0,), **options)[:2]


def on_mpi(made, programs):
    """What every rank has seen."""
    group = resolve(world, LIMIT)
    channels = Channels(*(open_channel(group, dict, LIMIT, "Partial Reduce") for _ in range(3)))
    thread = ProcessThread(programs[me], channels, LIMIT, "Partial Reduce")
    thread.start()
    thread.door.drive(programs[me].training)
    thread.join()
    return world.allgather(replace(made[me], training=None))


def averages(made):
    return [[(seen.group.members, seen.after) for seen in replica.groups] for replica in made]


def assert_law(made):
    for element in range(N):
        assert sum(replica.model[element] for replica in made) == sum(replica.moved[element] for replica in made)
    assert all(len(replica.groups) == STEPS for replica in made)


for k in (None, N):
    everyone = Settings(max(2, P))
    real = on_mpi(*scenario(everyone, k=k))
    for run in (loopback, partial(virtual, network=cluster(P))):
        imagined, programs = scenario(everyone, k=k)
        run(programs)
        assert averages(real) == averages(imagined)
for _ in range(10):
    assert_law(on_mpi(*scenario(Settings(2))))


def stopping_first(training):
    """This rank stops before its first step, and goes on by itself some time later."""
    subprocess.Popen(["sh", "-c", f"sleep {STOPPED}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
    return (yield from training)


if P > 2:
    made, programs = scenario(Settings(P, patience=0.3))
    if me == P - 1:
        programs[me] = replace(programs[me], training=stopping_first(programs[me].training))
    seen = on_mpi(made, programs)
    assert_law(seen)
    groups = [own.group.members for own in seen[0].groups]
    assert tuple(range(P - 1)) in groups, groups  # without it
    waited = made[me].training.metrics.waited_seconds
    assert waited < 0.9 * STOPPED, waited
