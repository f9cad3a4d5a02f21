"""algorithm="auto" and teams="auto": one choice on all ranks, from a profile or a measurement, that can be resumed."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import assert_law, integer_gradient, world
from cost.profiles import ethernet, profile, shared_memory, slow_latency

import spardl

P, me, folder = world.size, world.rank, Path(sys.argv[1])
N = 20_000


def build(n=N, density=0.01, **options):
    return spardl.SparseAllreduce(world, n, density=density, timeout=60, **options)


def assert_reduces(allreduce):
    grad, old = integer_gradient(me, 0, N, 1.0, "float32"), allreduce.residual.copy()
    result = allreduce.reduce(grad)
    assert_law(world, grad, old, result, allreduce.residual)


def same_everywhere(value):
    told = world.allgather(value)
    assert all(other == told[0] for other in told), told
    return value


def from_a_profile():
    """Only rank 0's counts; the others' may be missing."""
    path = folder / "net.json"
    if me == 0:
        slow_latency(P).save(path)
    quick = build(algorithm="auto", teams="auto", profile=path if me == 0 else folder / "nowhere.json")
    assert same_everywhere(quick.algorithm), quick.algorithm
    assert quick.plan[0].rounds == min(p.rounds for p in quick.plan)
    assert_reduces(quick)
    dense = build(density=0.9, algorithm="auto", profile=shared_memory(P))
    assert same_everywhere(dense.algorithm).startswith("dense")
    assert_reduces(dense)
    sparse = build(14_728_266 if P <= 2 else 2_000_000, algorithm="auto", teams="auto", profile=ethernet(P))
    assert same_everywhere((sparse.algorithm, sparse.teams))[0] == ("spardl" if P > 1 else sparse.algorithm)
    fixed = build(teams="auto", sag="b", profile=ethernet(P))
    assert {p.algorithm for p in fixed.plan} == {"spardl"}
    assert_reduces(fixed)


def from_a_measurement():
    """Once per communicator; logged on rank 0 only."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("spardl.plan")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    chosen = build(algorithm="auto", teams="auto")
    again = build(algorithm="auto", teams="auto")
    assert same_everywhere((chosen.algorithm, chosen.teams)) == (again.algorithm, again.teams)
    assert [p.seconds for p in chosen.plan] == [p.seconds for p in again.plan]  # not measured again
    assert len(records) == (2 if me == 0 else 0)
    if me == 0:
        assert f"chose {chosen.plan[0].name}; predicted {chosen.plan[0].name}" in records[0].getMessage()
    assert_reduces(chosen)
    members = [rank for rank in range(P) if rank % 2 == me % 2]
    some = spardl.SparseAllreduce((world, members), N, k=100, algorithm="auto", teams="auto", profile=ethernet(2))
    assert all(p.algorithm != "dense_mpi" for p in some.plan)  # the library's own needs all ranks


def resumed():
    """What was chosen when the state was saved goes on, whatever would be chosen now."""
    first = build(algorithm="auto", teams="auto", profile=slow_latency(P))
    grad = np.random.default_rng(me).standard_normal(N).astype(np.float32)
    first.reduce(grad)
    other = build(algorithm="auto", teams="auto", profile=profile(P, 0.0, 1e-6))
    other.load_state_dict(first.state_dict())
    assert (other.algorithm, other.teams) == (first.algorithm, first.teams)
    expected, result = first.reduce(grad), other.reduce(grad)
    assert expected.values.tobytes() == result.values.tobytes()


def bad_profiles():
    if me == 0:
        (folder / "bad.json").write_text("{}")
    for name, message in (("bad.json", "is not a profile written by"), ("none.json", "No such file")):
        with pytest.raises(ValueError, match=message):
            build(algorithm="auto", profile=folder / name)


from_a_profile()
from_a_measurement()
resumed()
bad_profiles()
