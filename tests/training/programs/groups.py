"""Hierarchical RNA: the law in each group, all ranks the same in the end, groups that follow the ranks' speeds."""

import time

import numpy as np
import torch
from mpi.programs.checks import world
from setting import P, assert_same_weights, me, raises, small_model, weights
from vector_model import N, Vector, integers, no_thread_is_left, rng, step, summed

import spardl.torch as spt
from spardl import NonFiniteGradient

HALVES = [tuple(range(0, P, 2)), tuple(range(1, P, 2))]


def law():
    """Σ a group's gradients = Σ its rounds' results + Σ its residuals, exactly, whatever is averaged between groups."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = spt.RNA(reduce=spt.SparDL(density=0.02), groups=HALVES, period=3)
    handle = spt.distribute(optimizer, model, sync=sync, comm=world)
    results, deposited = np.zeros(N), np.zeros(N)
    apply = handle._system._round_step.apply

    def applied(result, *arguments):
        results[result.vector.indices] += result.vector.values
        return apply(result, *arguments)

    handle._system._round_step.apply = applied
    shifts = []
    move = handle._vector.move_weights

    def moved(delta):
        shifts.append(delta.tobytes())
        move(delta)

    handle._vector.move_weights = moved
    for _ in range(30):
        x = integers()
        deposited += x
        step(model, optimizer, x, 0.004 if me % 2 == 0 else 0.01)
    handle.finish()
    group = world.Split(me % 2)
    np.testing.assert_array_equal(summed(deposited, group), results + summed(handle.residual, group))
    assert_same_weights(model)
    everyone = world.allgather(shifts)
    assert all(len({tuple(everyone[rank]) for rank in members}) == 1 for members in HALVES)  # all of a group move alike
    assert handle.stats.bytes_sent >= len(shifts) * model.w.nbytes or me not in (members[0] for members in HALVES[1:])
    return any(any(delta) for delta in shifts)


def optimizers():
    """Momentum is of one group while they are apart, and the same everywhere in the end."""
    for local_steps in (False, True):
        model = small_model(seed=me)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        sync = spt.RNA(groups=HALVES, period=2, local_steps=local_steps)
        with spt.distribute(optimizer, model, sync=sync, comm=world) as handle:
            start = weights(model)
            for number in range(25):
                time.sleep(rng.uniform(0, 0.01 if me % 2 else 0.003))
                optimizer.zero_grad()
                model.eval()(torch.randn(6, 8)).square().mean().backward()
                optimizer.step()
                if number == 12:
                    handle.settle()
                    assert_same_weights(model)
        assert_same_weights(model)
        assert not torch.equal(start, weights(model))
        buffers = [optimizer.state[p]["momentum_buffer"].sum().item() for p in model.parameters()]
        assert len(set(map(tuple, world.allgather(buffers)))) == 1


def speeds_change():
    """The upper half is slow at first, then as fast as the others; both are found out, and nothing gets lost."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = spt.RNA(reduce=spt.SparDL(density=0.05), groups="auto", period=4)
    handle = spt.distribute(optimizer, model, sync=sync, comm=world)
    assert list(handle.groups) == [tuple(range(P))]
    seen = [handle.groups]
    began = time.monotonic()

    def train_until(wanted):
        """All ranks, until all have seen it; they go through the same number of settles."""
        while True:
            for _ in range(24):
                slow = me >= P - P // 2 and len(wanted) > 1
                time.sleep(0.05 if slow else 0.01)
                step(model, optimizer, integers(), 0)
                if handle.groups != seen[-1]:
                    seen.append(handle.groups)
            handle.settle()
            assert_same_weights(model)
            assert time.monotonic() < began + 90, (handle.groups, wanted)
            if sorted(handle.groups) == wanted:
                return

    train_until([tuple(range(P - P // 2)), tuple(range(P - P // 2, P))])
    train_until([tuple(range(P))])
    handle.finish()
    assert_same_weights(model)


def faults():
    """In one group: every rank of the other ends, too."""
    last = world.size - 1  # in its group it has another place
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=spt.RNA(groups=HALVES), comm=world)

    def train():
        for number in range(10_000):
            x = integers()
            if me == last and number == 5:
                x[7] = np.nan
            step(model, optimizer, x)

    started = time.monotonic()
    raises(NonFiniteGradient, [f"on rank {last} ", "at index 7"], train)
    assert time.monotonic() - started < 30
    del handle


have_moved = [law() for _ in range(3)]
assert any(have_moved)
optimizers()
speeds_change()
faults()
no_thread_is_left(within=5)
