"""The same processes on real ranks, on ranks in this process, and in virtual time: what is applied is the same."""

import random
from functools import partial

from mpi4py import MPI
from protocols.rna_world import assert_law, replicas

from spardl.agreement import open_channel
from spardl.protocols.rna.policies import All, PowerOfChoices
from spardl.runtime.group import resolve
from spardl.runtime.loopback import loopback
from spardl.runtime.network import cluster
from spardl.runtime.thread import Channels, ProcessThread
from spardl.runtime.virtual import virtual

world = MPI.COMM_WORLD
P, me = world.size, world.rank
LIMIT = 60
GROUPS = [tuple(range(P))] if P < 4 else [tuple(range(P - 2)), (P - 2, P - 1)]


def scenario(policy, sparse):
    return replicas(
        [5] * P, random.Random(3), policy, sparse=sparse, groups=GROUPS, period=2, limit=LIMIT, slowness=(0,)
    )


def on_mpi(made, programs):
    """All replicas as they are on their own ranks."""
    group = resolve(world, LIMIT)
    channels = Channels(*(open_channel(group, dict, LIMIT, "RNA") for _ in range(3)))
    thread = ProcessThread(programs[me], channels, LIMIT, "RNA")
    thread.start()
    thread.door.drive(programs[me].training)
    thread.join()
    seen = world.allgather((made[me].applied, made[me].deposited, made[me].total, made[me].owed))
    for replica, (replica.applied, replica.deposited, replica.total, owed) in zip(made, seen, strict=True):
        if replica is not made[me] and owed.any():
            replica.part.reducer.owe(owed)
    return made


def without_shifts(made):
    """When a shift comes is a matter of time."""
    return [[given for given in replica.applied if given[0] != "shift"] for replica in made]


for sparse in (False, True):
    made, programs = scenario(All(), sparse)
    real = on_mpi(made, programs)
    assert_law(real, GROUPS)
    for run in (loopback, partial(virtual, network=cluster(P))):
        imagined, programs = scenario(All(), sparse)
        run(programs)
        assert without_shifts(real) == without_shifts(imagined)
    assert_law(on_mpi(*scenario(PowerOfChoices(2), sparse)), GROUPS)
