"""Partial Reduce through torch: models are averaged and not lost, errors reach every rank, and it ends cleanly."""

import time

import numpy as np
import torch
from mpi.programs.checks import world
from mpi4py import MPI
from setting import P, assert_same_weights, backward, batch, me, raises, small_model, weights
from torch import nn
from vector_model import N, Vector, no_thread_is_left, rng, step, summed

import spardl.torch as spt
from spardl import NonFiniteGradient, PeerError

GROUP = max(2, P // 2)


def train(model, optimizer, steps, seconds=0.005):
    for number in range(steps):
        time.sleep(rng.uniform(0, seconds))
        optimizer.zero_grad()
        backward(model, batch(me, number, next(model.parameters()).dtype))
        optimizer.step()


def law(sync):
    """Σ of all models = Σ of all moves. Halves and few thirds are exact where moves are multiples of 2¹² and 3¹²."""
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    moved = np.zeros(N)
    with spt.distribute(optimizer, model, sync=sync, comm=world) as handle:
        for _ in range(12):
            x = rng.integers(-9, 10, N) * 6.0**12
            moved -= x
            step(model, optimizer, x)
    np.testing.assert_allclose(P * model.w.detach().numpy(), summed(moved), rtol=1e-12, atol=1e-2)
    assert_same_weights(model)
    assert handle.metrics.iterations == handle.stats.steps == 12
    assert max(world.allgather(handle.iteration)) == min(world.allgather(handle.iteration)) >= 12
    graphs = world.allgather(handle.sync_graph)
    assert all(graph == graphs[0] for graph in graphs)
    no_thread_is_left()
    return handle


def laws():
    for _ in range(5):  # it ends cleanly, again and again
        law(spt.PartialReduce(GROUP, "constant"))
    everyone = law(spt.PartialReduce(max(2, P), "constant"))
    assert everyone.sync_graph["rho"] < 1e-9
    assert everyone.stats.density == 1
    sparse = law(spt.PartialReduce(GROUP, "constant", global_every=5, reduce=spt.SparDL(density=0.02)))
    assert sparse.stats.density < 1
    law(spt.PartialReduce("auto", "constant"))


def until_an_iteration():
    """A slow rank makes fewer steps of its own, and all come to the end."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    own = 0
    with spt.distribute(optimizer, model, sync=spt.PartialReduce(GROUP), comm=world) as handle:
        while handle.iteration < 30:
            train(model, optimizer, 1, 0.03 if me == P - 1 else 0.003)
            own += 1
    told = world.allgather(own)
    assert handle.iteration <= 31 or P == 1
    assert max(told) <= 31
    if P > 2:
        assert told[-1] < max(told)


def optimizers():
    """What travels with weights: after ``settle`` all ranks have the same of it."""
    for state in ("local", "average", "adopt"):
        for make in (
            lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
            lambda p: torch.optim.Adam(p, lr=0.01),
        ):
            model = small_model()
            optimizer = make(model.parameters())
            sync = spt.PartialReduce(GROUP, optimizer_state=state)
            with spt.distribute(optimizer, model, sync=sync, comm=world) as handle:
                train(model, optimizer, 6)
                handle.settle()
                assert_same_weights(model)
                buffers = b"".join(buffer.numpy().tobytes() for buffer in model.buffers())
                assert len(set(world.allgather(buffers))) == 1
                if state == "average":
                    moments = [v.numpy().tobytes() for s in optimizer.state.values() for v in s.values()]
                    assert len(set(world.allgather(b"".join(moments)))) == 1
                train(model, optimizer, 3)
            assert_same_weights(model)


def checkpoints():
    """Every rank goes on from its own model, or all from the average."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sync = spt.PartialReduce(GROUP)
    handle = spt.distribute(optimizer, model, sync=sync, comm=world)
    train(model, optimizer, 7)
    state, gathered, saved = handle.state_dict(), handle.gathered_state_dict(), weights(model).clone()
    iteration = handle.iteration
    momentum = [s["momentum_buffer"].clone() for s in optimizer.state.values()]
    train(model, optimizer, 3)
    raises(RuntimeError, ["call settle() first"], lambda: handle.load_state_dict(state))
    handle.settle()
    handle.load_state_dict(state)
    assert handle.iteration == iteration
    assert torch.equal(weights(model), saved)
    assert all(torch.equal(s["momentum_buffer"], m) for s, m in zip(optimizer.state.values(), momentum, strict=True))
    if me == 0:
        assert handle.sync_graph["groups"] == state["system"]["groups"]
    train(model, optimizer, 2)
    handle.finish()
    assert handle.iteration >= iteration + 2
    if gathered is not None:
        average = torch.cat([value.reshape(-1) for value in gathered["average"]["weights"].values()])
        alone = spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF)
        alone.load_state_dict(gathered)
        assert P == 1 or torch.equal(weights(model), average)
        alone.finish()
    mean = summed(saved.numpy().astype(np.float64)) / P
    if gathered is not None:
        np.testing.assert_allclose(average.numpy(), mean, rtol=1e-5, atol=1e-7)


def damaged():
    """A damaged state on one rank is refused on all, and nothing has changed."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    handle = spt.distribute(optimizer, model, sync=spt.PartialReduce(GROUP), comm=world)
    train(model, optimizer, 2)
    handle.settle()
    state, before = handle.state_dict(), weights(model).clone()
    if me == P - 1:
        name = next(iter(state["weights"]))
        state["weights"][name] = state["weights"][name] * float("nan")
    raises(ValueError, ["not finite"], lambda: handle.load_state_dict(state))
    assert torch.equal(weights(model), before)
    handle.finish()


def faults():
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=spt.PartialReduce(GROUP), comm=world)

    def train_on():
        for number in range(10_000):
            x = np.ones(N)
            if me == 1 % P and number == 5:
                x[7] = np.nan
            step(model, optimizer, x)

    raises(NonFiniteGradient, [f"of 'w' on rank {1 % P} ", "at index 7"], train_on)
    del handle


def misuse():
    """Another optimizer on one rank: what travels differs, and all hear of it. Nor may a group be larger than all."""
    model = small_model()
    make = torch.optim.Adam if me == P - 1 else torch.optim.RMSprop
    optimizer = make(model.parameters(), lr=0.01)
    sync = spt.PartialReduce(P + 1 if P > 1 else 2)
    if P > 1:
        raises(
            ValueError,
            [f"expected group to be at most {P}, which is all ranks there are, got {P + 1}"],
            lambda: spt.distribute(torch.optim.SGD(model.parameters(), lr=1.0), model, sync=sync, comm=world),
        )
        raises(
            Exception,
            ["Adam", "RMSprop"],
            lambda: spt.distribute(optimizer, model, sync=spt.PartialReduce(GROUP), comm=world),
        )


def a_parameter_more():
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=spt.PartialReduce(GROUP), comm=world)

    def train_on():
        for number in range(10_000):
            if me == P - 1 and number == 5:
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
            step(model, optimizer, np.ones(N))

    if me == P - 1:
        raises(RuntimeError, ["has 2 parameters, but had 1"], train_on)
    else:
        raises(PeerError, [f"rank {P - 1} failed with RuntimeError: the optimizer has 2 parameters"], train_on)
    del handle


laws()
until_an_iteration()
optimizers()
checkpoints()
damaged()
misuse()
faults()
a_parameter_more()
no_thread_is_left(within=5)
