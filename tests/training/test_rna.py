"""RNA on one rank: what it refuses, and what it tells. Several ranks are in programs/rna.py."""

import pytest
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt


def distribute(sync):
    model = nn.Linear(20, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(3, 20)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reduce": "dense"}, r"reduce to be SparDL\(…\) or Dense\(\)"),
        ({"reduce": spt.SparDL(density=0.1, teams=2, momentum=0.9)}, "reduce to be without teams, momentum"),
        ({"reduce": spt.SparDL(density=spt.Warmup(0.1, 5))}, "density to be a number"),
        ({"staleness": 0}, "staleness to be at least 1"),
        ({"patience": 0}, "patience to be seconds above 0"),
        ({"period": 0}, "period to be at least 1 round"),
        ({"groups": "some"}, 'groups to be lists of ranks, "auto" or None'),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=f"RNA: expected {words}"):
        spt.RNA(**arguments)


def test_stats_and_metrics():
    model, optimizer, handle = distribute(spt.RNA(reduce=spt.SparDL(density=0.2), policy=spt.All()))
    for _ in range(4):
        step(model, optimizer)
    handle.finish()
    handle.finish()  # once is enough
    assert handle.stats.steps == 4
    assert handle.stats.density == pytest.approx(0.2, abs=0.01)
    assert handle.metrics.contributors == [1] * 4
    assert handle.metrics.staleness == {0: 4}


def test_what_is_distributed_is_not_distributed_again_until_it_is_finished():
    model, optimizer, handle = distribute(spt.RNA())
    with pytest.raises(ValueError, match="distributed already"):
        spt.distribute(optimizer, model, sync=spt.Dense(), comm=MPI.COMM_SELF)
    handle.finish()
    spt.distribute(optimizer, model, sync=spt.Dense(), comm=MPI.COMM_SELF).remove()


def test_options_that_rna_does_not_know():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="knows no GradScaler and no exclude"):
        spt.distribute(optimizer, model, sync=spt.RNA(), comm=MPI.COMM_SELF, exclude=["bias"])


def test_closures_are_refused():
    _, optimizer, handle = distribute(spt.RNA())
    with pytest.raises(TypeError, match="step\\(closure\\) cannot be distributed"):
        optimizer.step(lambda: None)
    handle.finish()


@pytest.mark.parametrize("groups", [[[0, 1]], [[]], [[0], [0]]])
def test_groups_must_have_every_rank_once(groups):
    with pytest.raises(ValueError, match="RNA: expected groups to be lists that have each of the 1 ranks once"):
        distribute(spt.RNA(groups=groups))


@pytest.mark.parametrize("groups", ["auto", [[0]]])
def test_one_rank_in_groups(groups):
    model, optimizer, handle = distribute(spt.RNA(groups=groups, period=2))
    for _ in range(20):
        step(model, optimizer)
    handle.finish()
    assert list(handle.groups) == [(0,)]
    assert sum(handle.metrics.staleness.values()) == 20
