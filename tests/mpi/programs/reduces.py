"""Thirty consecutive reduces for every team count and SAG, against the reference; traffic as scheduled."""

import sys

import numpy as np
from checks import gradient, same_everywhere, world
from reference import Reference

import spardl
from spardl import schedule

N, K, STEPS = 2500, 120, 30
P, me = world.size, world.rank


def by_the_reference(teams, sag):
    """Of thirty steps the result, and every rank's residual after it."""
    reference = Reference(P, teams, N, K, "float32", sag)
    for step in range(STEPS):
        result = reference.reduce([gradient(rank, step, N) for rank in range(P)])
        yield result, np.copy(reference.residual)


def thirty_reduces(teams, sag, wire, backend, expected):
    allreduce = spardl.SparseAllreduce(world, N, k=K, teams=teams, sag=sag, wire=wire, backend=backend, timeout=30)
    rounds = 2 * schedule.ceil_log2(P // teams) + schedule.ceil_log2(teams)
    for step, (total, residuals) in enumerate(expected):
        result = allreduce.reduce(gradient(me, step, N))
        np.testing.assert_array_equal(result.indices, np.flatnonzero(total))
        assert result.values.tobytes() == total[total != 0].tobytes()
        np.testing.assert_array_equal(allreduce.residual, residuals[me])
        assert allreduce.traffic.rounds == allreduce.traffic.messages_sent == rounds
        assert P == 1 or allreduce.traffic.bytes_sent > 0
    assert step == STEPS - 1
    assert same_everywhere(world, result.values)


def allgathers():
    vector = spardl.SparseVector([me, me + 3], np.array([me, 1.5], "float32"), 20 + me)
    for algorithm in ("bruck", "recursive_doubling"):
        if algorithm == "recursive_doubling" and not schedule.is_power_of_two(P):
            continue
        for rank, got in enumerate(spardl.allgather(world, vector, algorithm=algorithm, timeout=30)):
            assert got.size == 20 + rank
            np.testing.assert_array_equal(got.indices, [rank, rank + 3])
            np.testing.assert_array_equal(got.values, np.array([rank, 1.5], "float32"))


settings = [
    (teams, sag)
    for teams in schedule.team_counts(P)
    for sag in (["r", "b"] if schedule.is_power_of_two(teams) else ["b"])
]
mine = {setting: list(by_the_reference(*setting)) for setting in settings[me::P]}  # slow, so ranks share it
for number, (teams, sag) in enumerate(settings):
    expected = world.bcast(mine.get((teams, sag)), root=number % P)
    thirty_reduces(teams, sag, "raw" if sag == "r" else "packed", sys.argv[1], expected)
allgathers()
