"""Several collectives in flight, lists of ranks without a communicator, and the caller's own messages beside ours."""

import gc
import threading
import time

import numpy as np
from checks import assert_law, gradient, integer_gradient, world
from mpi4py import MPI
from reference import Reference

import spardl
from spardl.runtime.bell import Bell, my_bell
from spardl.runtime.group import resolve
from spardl.runtime.mpi import wait_all

N, P, me = 1000, world.size, world.rank


def many_in_flight():
    """Five all-reduces at once, driven in different orders on different ranks."""
    sizes = [N + 10 * i for i in range(5)]
    allreduces = [spardl.SparseAllreduce(world, size, density=0.05, timeout=30) for size in sizes]
    references = [Reference(P, 1, size, round(0.05 * size), "float32") for size in sizes]
    for step in range(5):
        order = np.random.default_rng([me, step]).permutation(5)
        tasks = {i: allreduces[i].start(gradient(me, 100 * i + step, sizes[i])) for i in order}
        wait_all(list(tasks.values()))
        for i, task in tasks.items():
            expected = references[i].reduce([gradient(rank, 100 * i + step, sizes[i]) for rank in range(P)])
            assert task.wait().to_dense().tobytes() == expected.tobytes()
    if P > 1:
        running = allreduces[0].start(gradient(me, 1, sizes[0]))
        try:
            allreduces[0].start(gradient(me, 1, sizes[0]))
            raise AssertionError("two reduces at once on one object")
        except RuntimeError as error:
            assert "already under way" in str(error)
        running.wait()


def waited_for_in_different_orders():
    """As with MPI's own non-blocking collectives: whoever waits drives everything that it has in flight."""
    allreduces = [spardl.SparseAllreduce(world, N, k=50, timeout=60) for _ in range(3)]
    for step in range(10):
        tasks = [allreduce.start(integer_gradient(me, step, N, 1.0)) for allreduce in allreduces]
        order = [(number + me) % 3 for number in range(3)]
        results = {number: tasks[number].wait().to_dense() for number in order}
        assert all(np.array_equal(results[0], result) for result in results.values())


def dropped():
    """A task that nobody holds any more ends with its object's next call, on ranks that waited for it and those not."""
    allreduce = spardl.SparseAllreduce(world, N, k=50, timeout=60)
    reference = Reference(P, 1, N, 50, "float64")
    for step in range(0, 6, 2):
        first, second = (
            reference.reduce([integer_gradient(rank, step + i, N, 1.0) for rank in range(P)]) for i in range(2)
        )
        task = allreduce.start(integer_gradient(me, step, N, 1.0))
        if step == 2 and me == 0:
            np.testing.assert_array_equal(task.wait().to_dense(), first)
        del task
        np.testing.assert_array_equal(allreduce.reduce(integer_gradient(me, step + 1, N, 1.0)).to_dense(), second)


def two_threads():
    """Each has a reducer of its own."""
    allreduces = [spardl.SparseAllreduce(world, N, k=50, timeout=60) for _ in range(2)]
    digests, errors = {}, []

    def work(number):
        try:
            results = (allreduces[number].reduce(integer_gradient(me, step, N, 1.0)) for step in range(200))
            digests[number] = hash(tuple(result.to_dense().tobytes() for result in results))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert digests[0] == digests[1]


def tags_used_again():
    """When there are no more tags, objects take those of others that are gone, and none that are in use."""
    members = list(range(P))
    lasting = [spardl.SparseAllreduce((world, members), N, k=50, timeout=60) for _ in range(3)]
    group = lasting[0]._group
    first = min(allreduce._channel.pair for allreduce in lasting)
    group.home.next_free = first + group._recyclable - me  # the tags of the lasting ones are next; ranks need not agree
    later = [spardl.SparseAllreduce((world, members), N, k=50, timeout=60) for _ in range(3)]
    tags = {group.tags(allreduce._channel.pair) for allreduce in (*lasting, *later)}
    assert len(tags) == 6
    assert {allreduce._channel._generation for allreduce in later} <= {0, 1}
    assert later[-1]._channel._generation == 1
    tasks = [allreduce.start(integer_gradient(me, 3, N, 1.0)) for allreduce in (*lasting, *later)]
    results = [result.to_dense() for result in wait_all(tasks)]
    assert all(np.array_equal(results[0], result) for result in results)


def communicators_used_again():
    """MPI has some two thousand communicators: objects that are gone give theirs back."""
    made = []
    for _ in range(5):
        pair = [spardl.SparseAllreduce(world, 10, k=0, algorithm="dense_mpi", timeout=60) for _ in range(2)]
        np.testing.assert_array_equal(pair[1].reduce(np.ones(10)).values, np.full(10, float(P)))
        made.append(len(pair[0]._group.home.sums))
        del pair
        gc.collect()
    assert made[-1] == made[0], made


def rank_lists():
    """Even and odd ranks work apart, overlapping groups in turn; nobody else takes part, no communicator is made."""
    members = [rank for rank in range(P) if rank % 2 == me % 2][::-1]
    grad = integer_gradient(me, 7, N, 1.0)
    allreduce = spardl.SparseAllreduce((world, members), N, k=50, timeout=30)
    reference = Reference(len(members), 1, N, 50, "float64")
    expected = reference.reduce([integer_gradient(rank, 7, N, 1.0) for rank in members])
    np.testing.assert_array_equal(allreduce.reduce(grad).to_dense(), expected)
    for first in range(P - 1):
        if me in (first, first + 1):
            pair = [first, first + 1]
            gathered = spardl.allgather((world, pair), spardl.SparseVector([me], [1.0], P), timeout=30)
            assert [int(vector.indices[0]) for vector in gathered] == pair
    try:
        spardl.allgather((world, [(me + 1) % P]), spardl.SparseVector([], np.empty(0), 1)) if P > 1 else None
        assert P == 1
    except ValueError as error:
        assert "not in the list" in str(error)


def users_messages():
    """Receives for any source and tag, posted before our messages fly, get the caller's message and nothing else."""
    box = np.zeros(1)
    request = world.Irecv(box, MPI.ANY_SOURCE, MPI.ANY_TAG)
    allreduce = spardl.SparseAllreduce(world, N, k=100, timeout=30)
    for step in range(3):
        grad = integer_gradient(me, step, N, 1.0)
        old = allreduce.residual.copy()
        result = allreduce.reduce(grad)
        assert_law(world, grad, old, result, allreduce.residual)
        assert not request.Test()
    world.Barrier()
    world.Send(np.array([42.0 + me]), (me + 1) % P, tag=3)
    status = MPI.Status()
    request.Wait(status)
    assert (status.Get_source(), status.Get_tag(), box[0]) == ((me - 1) % P, 3, 42.0 + (me - 1) % P)


def any_generator():
    """``run`` answers effects with bytes: a ring of sends and receives."""

    def ring():
        if me % 2 == 0:
            yield spardl.Send((me + 1) % P, np.arange(me, me + 4))
            arrived = yield spardl.Recv((me - 1) % P)
        else:
            arrived = yield spardl.Recv((me - 1) % P)
            numbers = np.arange(me, me + 4).view(np.uint8)
            yield spardl.Send((me + 1) % P, [numbers[:5], numbers[5:]])
            yield spardl.Flush()
        return arrived.view(int).tolist()

    left = (me - 1) % P
    assert spardl.run(world, ring(), timeout=30) == list(range(left, left + 4))


def bells():
    """A rank that waits for one of the same host sleeps until that rings; without any bell it wakes now and then."""
    here, heard = my_bell(), []
    assert here is None or (resolve(world, 30).bells == world.allgather(here.name) and here.name[:7] == b"spardl-")
    wait = Bell.wait

    def listen(bell, milliseconds, ringers):
        heard.append(wait(bell, milliseconds, ringers))
        return heard[-1]

    def late():
        if me == 0:
            arrived = yield spardl.Recv(P - 1)
            return int(arrived[0])
        if me == P - 1:
            time.sleep(0.1)
            yield spardl.Send(0, np.array([me], np.uint8))

    Bell.wait = listen
    assert spardl.run(world, late(), timeout=30) in (P - 1, None)
    assert me > 0 or here is None or heard.count(True) > 0
    Bell.wait = lambda bell, milliseconds, ringers: time.sleep(1e-3)
    assert spardl.run(world, late(), timeout=30) in (P - 1, None)
    Bell.wait = wait


if P > 1:
    rank_lists()  # first, while the communicator has no duplicate
users_messages()
many_in_flight()
waited_for_in_different_orders()
dropped()
two_threads()
communicators_used_again()
if P > 1:
    rank_lists()
    any_generator()
    bells()
    tags_used_again()
world.Dup().Free()
