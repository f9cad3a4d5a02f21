"""What goes wrong on one rank becomes an error on all; afterwards the state is as before, and work goes on."""

import time

import numpy as np
from checks import assert_law, integer_gradient, state_bytes, world

import spardl
from spardl.runtime import channel
from spardl.runtime.envelope import sealed

N, P, me = 600, world.size, world.rank
TEAMS = 2 if P % 2 == 0 else 1
STEP = iter(range(10**6))


def build(**changes):
    return spardl.SparseAllreduce(world, **({"size": N, "k": 60, "teams": TEAMS, "timeout": 5} | changes))


def good_reduce(allreduce):
    grad = integer_gradient(me, next(STEP), N, scale=2.0**20)
    old = allreduce.residual.copy()
    assert_law(world, grad, old, allreduce.reduce(grad), allreduce.residual)


def raises(kind, words, action, within=20.0):
    """``action`` raises on this rank, in time, with all the words in its message; returns the error."""
    started = time.monotonic()
    try:
        action()
    except kind as error:
        text = str(error)
        assert all(word in text for word in words), text
        assert time.monotonic() - started < within, time.monotonic() - started
        return error
    raise AssertionError(f"rank {me}: no {kind.__name__}")


def fails_and_recovers(allreduce, kind, words, grad, **limits):
    before = state_bytes(allreduce)
    error = raises(kind, words, lambda: allreduce.reduce(grad), **limits)
    assert state_bytes(allreduce) == before
    world.Barrier()
    good_reduce(allreduce)
    return error


def broken_on(rank, change):
    grad = integer_gradient(me, next(STEP), N, scale=1.0)
    return change(grad) if me == rank else grad


def with_value(value, index):
    def change(grad):
        grad[index] = value
        return grad

    return change


def bad_gradients(last):
    allreduce = build()
    good_reduce(allreduce)
    for value in (np.nan, np.inf, -np.inf):
        error = fails_and_recovers(
            allreduce, spardl.NonFiniteGradient, [f"rank {last}", "index 321"], broken_on(last, with_value(value, 321))
        )
        assert (error.rank, error.index) == (last, 321)
    fails_and_recovers(allreduce, spardl.NonFiniteGradient, ["non-finite"], broken_on(me, with_value(np.nan, me)))
    fails_and_recovers(allreduce, ValueError, ["shape (600,)", "(599,)"], broken_on(last, lambda g: g[:-1].copy()))
    fails_and_recovers(allreduce, ValueError, ["contiguous"], broken_on(last, lambda g: np.repeat(g, 2)[::2]))
    fails_and_recovers(allreduce, ValueError, ["(600,)", "(600, 1)"], broken_on(last, lambda g: g[:, None]))
    fails_and_recovers(allreduce, TypeError, ["float32 or float64", "int64"], broken_on(last, lambda g: g.astype(int)))
    fails_and_recovers(
        allreduce, TypeError, ["float64, as in the first", "float32"], broken_on(last, lambda g: g.astype("f4"))
    )
    fails_and_recovers(allreduce, TypeError, ["numpy array", "list"], broken_on(last, lambda g: g.tolist()))
    huge = np.full(N, 1.7e308)
    if P > 1:
        fails_and_recovers(allreduce, spardl.NonFiniteGradient, ["overflows"], huge)


def different_dtypes_at_first(last):
    allreduce = build()
    grad = integer_gradient(me, next(STEP), N, scale=1.0, dtype="float32" if me == last else "float64")
    raises(TypeError, ["dtype", "float32", "float64"], lambda: allreduce.reduce(grad))
    world.Barrier()
    good_reduce(allreduce)


def built_differently(last):
    for name, value in (("size", N + 1), ("k", 61), ("residual", "local"), ("wire", "raw"), ("wire_dtype", "bf16")):
        changes = {name: value} if me == last else {}
        error = raises(ValueError, ["disagree", name, f"on rank {last}"], lambda c=changes: build(**c))
        assert len(set(world.allgather(str(error)))) == 1
    other_teams = {2: 2, 3: 3, 4: 4}.get(P, P)
    if other_teams != TEAMS:
        changes = {"teams": other_teams} if me == last else {}
        raises(ValueError, ["disagree", "teams"], lambda: build(**changes))
    changes = {"teams": P + 1} if me == last else {}
    raises(ValueError, [f"divide {P} ranks", f"got {P + 1}"], lambda: build(**changes))
    raises(ValueError, ["divide", str([d for d in range(1, P + 1) if P % d == 0])], lambda: build(teams=P + 1))
    good_reduce(build())


def missing_rank(absent):
    """One rank does not come: the others say so in time and name it. When it comes again, all goes on."""
    allreduce = build(timeout=2)
    good_reduce(allreduce)
    before = state_bytes(allreduce)
    if me != absent:
        grad = integer_gradient(me, next(STEP), N, scale=1.0)
        error = raises(
            spardl.PeerTimeout,
            [f"rank {absent} did not answer within 2 s", "round"],
            lambda: allreduce.reduce(grad),
            within=8,  # on a busy machine
        )
        assert error.ranks == (absent,)
    else:
        next(STEP)
        time.sleep(2)  # what comes next spins
    assert state_bytes(allreduce) == before
    world.Barrier()
    good_reduce(allreduce)
    good_reduce(allreduce)


def damaged_messages(culprit):
    """A bit flips in a message of one rank: all ranks raise, with that rank's number, and nothing has changed."""
    for algorithm in ("spardl", "gtopk", "dense_ring"):
        allreduce = build(algorithm=algorithm, teams=1)
        good_reduce(allreduce)
        flips = {"left": me == culprit}

        def seal(*arguments, flips=flips):
            message = sealed(*arguments)
            if flips["left"]:
                flips["left"] = False
                message[-3] ^= 4
            return message

        channel.sealed = seal
        grad = integer_gradient(me, next(STEP), N, scale=1.0)
        fails_and_recovers(allreduce, spardl.WireError, [f"from rank {culprit} was damaged"], grad)
        channel.sealed = sealed


def list_of_ranks():
    """Ranks of a list are told of by the numbers that their communicator knows them by, not by their places in it."""
    members = list(range(P - 1, 0, -1))
    last, absent = members[0], members[-1]
    if me == 0:
        return
    allreduce = spardl.SparseAllreduce((world, members), N, k=60, timeout=2)
    grad = broken_on(last, with_value(np.nan, 5))
    error = raises(spardl.NonFiniteGradient, [f"on rank {last} ", "index 5"], lambda: allreduce.reduce(grad))
    assert (error.rank, error.index) == (last, 5)
    known = spardl.NonFiniteGradient(f"found elsewhere, on rank {last}", rank=last, index=1)
    if me == absent:
        allreduce.fail(known)  # which tells of ranks as the communicator does already
    else:
        error = raises(spardl.NonFiniteGradient, [str(known)], lambda: allreduce.reduce(np.ones(N)))
        assert (error.rank, error.index) == (last, 1)
    kind = np.float64 if me == last else np.float32
    fresh = spardl.SparseAllreduce((world, members), N, k=60, timeout=5)
    if len(members) > 1:
        raises(TypeError, [f"float64 on rank {last}"], lambda: fresh.reduce(np.ones(N, kind)))
    words = [f"k: 60 on rank{'s' if P > 3 else ''} {', '.join(map(str, members[:-1]))} but 61 on rank {absent}"]
    raises(ValueError, words, lambda: spardl.SparseAllreduce((world, members), N, k=60 + (me == absent), timeout=5))
    if me != absent:
        words = [f"rank {absent} did not answer within 2 s"]
        error = raises(spardl.PeerTimeout, words, lambda: allreduce.reduce(np.ones(N)), within=8)
        assert error.ranks == (absent,)
    else:
        time.sleep(2)


def failed_rank_goes_on_at_once(last):
    """Its messages of the next call arrive before the others have even begun the one that failed."""
    allreduce = build()
    for _ in range(3):
        good_reduce(allreduce)
        if me != last:
            time.sleep(0.3)
        grad = broken_on(last, with_value(np.nan, 5))
        raises(spardl.NonFiniteGradient, [f"rank {last}", "index 5"], lambda g=grad: allreduce.reduce(g))
        good_reduce(allreduce)


def a_rank_that_made_a_call_too_few(last):
    """The others are one call ahead: somebody notices, and all are told or time out; nobody hangs."""
    allreduce = build(timeout=3)
    good_reduce(allreduce)
    if me == last:
        allreduce._channel._call -= 1
    error = raises((spardl.OutOfStep, spardl.PeerTimeout), [], lambda: good_reduce(allreduce), within=20)
    assert P == 1 or spardl.OutOfStep in {type(e) for e in world.allgather(error)}


bad_gradients(P - 1)
if P > 1:
    failed_rank_goes_on_at_once(P - 1)
    different_dtypes_at_first(P - 1)
    built_differently(P - 1)
    missing_rank(P - 1)
    missing_rank(0)
    damaged_messages(P - 1)
    if P > 2:
        list_of_ranks()
        world.Barrier()
    a_rank_that_made_a_call_too_few(P - 1)
    good_reduce(build())  # nobody is lost in the end
