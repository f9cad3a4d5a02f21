"""Every rival on real ranks: the law exactly, the same bits, a NaN that all hear of, and work that goes on after it."""

import numpy as np
from checks import assert_law, gradient, integer_gradient, same_everywhere, state_bytes, world

import spardl
from spardl.allreduce import ALGORITHMS
from spardl.runtime.mpi import Task, wait_all

N, K, STEPS = 1500, 60, 5
P, me = world.size, world.rank


def five_reduces(algorithm):
    allreduce = spardl.SparseAllreduce(world, N, k=K, algorithm=algorithm, timeout=30)
    for step in range(STEPS):
        grad, old = integer_gradient(me, step, N, 1.0), allreduce.residual.copy()
        result = allreduce.reduce(grad)
        assert_law(world, grad, old, result, allreduce.residual)
        assert same_everywhere(world, result.indices) and same_everywhere(world, result.values)
    if algorithm.startswith("dense"):
        total = allreduce.reduce(gradient(me, 1, N, "float64")).values
        assert same_everywhere(world, total)
        np.testing.assert_allclose(total, sum(gradient(rank, 1, N, "float64") for rank in range(P)), atol=1e-12)
    return allreduce


def nan_on_one_rank(allreduce):
    before = state_bytes(allreduce)
    grad = integer_gradient(me, 9, N, 1.0)
    if me == P - 1:
        grad[5] = np.nan
    try:
        allreduce.reduce(grad)
        raise AssertionError("a NaN went unnoticed")
    except spardl.NonFiniteGradient as error:
        assert (error.rank, error.index) == (P - 1, 5)
    assert state_bytes(allreduce) == before
    world.Barrier()
    grad, old = integer_gradient(me, 10, N, 1.0), allreduce.residual.copy()
    assert_law(world, grad, old, allreduce.reduce(grad), allreduce.residual)


def wrong_shape_on_one_rank(allreduce):
    """The others must not be left in the library's collective."""
    try:
        allreduce.reduce(np.ones(N - 1 if me == 0 else N))
        raise AssertionError("a wrong shape went unnoticed")
    except ValueError as error:
        assert "shape" in str(error)
    world.Barrier()


def many_in_flight():
    """Each has a communicator of its own, so it does not matter in which order ranks start them."""
    sums = [spardl.SparseAllreduce(world, N, k=0, algorithm="dense_mpi", timeout=30) for _ in range(3)]
    tasks = {i: sums[i].start(integer_gradient(me, i, N, 1.0)) for i in np.random.default_rng(me).permutation(3)}
    wait_all(list(tasks.values()))
    for i, task in tasks.items():
        np.testing.assert_array_equal(task.wait().values, sum(integer_gradient(rank, i, N, 1.0) for rank in range(P)))


def sum_that_some_never_begin():
    """The others hear why. As it cannot be called off, later calls on the object fail, on all ranks alike."""
    allreduce = spardl.SparseAllreduce(world, N, k=0, algorithm="dense_mpi", timeout=30)
    buffers = np.ones(N), np.empty(N)

    def all_but_the_last():
        if me == P - 1:
            raise ValueError("not me")
        yield spardl.Allreduce(*buffers)

    try:
        Task(allreduce._channel, all_but_the_last(), 30).wait()
        raise AssertionError("nobody told")
    except ValueError as error:
        assert "not me" in str(error)
    world.Barrier()
    try:
        allreduce.reduce(np.ones(N))
        raise AssertionError("two sums may have met")
    except RuntimeError as error:
        assert "build the SparseAllreduce anew" in str(error)
    world.Barrier()
    if me == P - 1:
        allreduce._channel.sum(*buffers).Wait()
    world.Barrier()
    raised = 0
    for _ in range(100):  # now it is over, and all is well again as soon as the ranks have noticed
        try:
            allreduce.reduce(np.ones(N))
            break
        except RuntimeError:
            raised += 1
            world.Barrier()
    assert raised < 100


for name in ALGORITHMS:
    built = five_reduces(name)
    wrong_shape_on_one_rank(built)
    nan_on_one_rank(built)
many_in_flight()
sum_that_some_never_begin()
