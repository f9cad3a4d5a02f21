"""What Hop and gossip refuse, by name, before anything is sent."""

import networkx
import numpy as np
import pytest
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt
from spardl.graphs import graph


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_gap": 2.5}, "max_gap to be a number or None"),
        ({"max_gap": True}, "max_gap to be a number or None"),
        ({"staleness": "5"}, "staleness to be a number or None"),
        ({"backup": None}, "backup to be a number"),
        ({"reuse": 1}, "reuse to be True or False"),
        ({"skip": 2}, r"skip to be \(behind, most\) or None"),
        ({"skip": (2, 3, 4)}, r"skip to be \(behind, most\) or None"),
        ({"order": "both"}, "order to be one of"),
        ({"weights": "equal"}, "weights to be one of"),
        ({"density": 0}, "density to be above 0"),
        ({"density": 0.01}, 'order to be "serial" with density'),
        ({"density": 0.01, "order": "serial", "backup": 1}, "density to be None with backup or staleness"),
        ({"gamma": 0.1}, "gamma to be None without density"),
        ({"density": 0.1, "order": "serial", "gamma": 2}, "gamma to be above 0"),
    ],
)
def test_wrong_arguments_of_hop(options, words):
    with pytest.raises(ValueError, match=f"Hop: expected {words}"):
        spt.Hop(**options)


@pytest.mark.parametrize(
    ("sync", "words"),
    [
        (spt.Hop("ring", skip=(2, 4)), "skip to be None without backup or staleness"),
        (spt.Hop("ring", backup=3), "backup to be at most 2"),
        (spt.Hop("ring", max_gap=None, backup=1), "max_gap to be a number where there are backup workers"),
        (spt.Hop("one-peer-exponential", staleness=2), "one that does not change"),
        (spt.Hop("one-peer-exponential", order="serial", density=0.1), "one that does not change, with density"),
        (spt.Hop("ring-based"), "even number of ranks"),
        (spt.Hop([[1], [0], [3], [2], [0]]), "reach"),
        (spt.Gossip("nothing"), "nothing"),
    ],
)
def test_what_does_not_fit_the_ranks(sync, words):
    with pytest.raises(ValueError, match=words):
        sync.require_fitting(5)


@pytest.mark.parametrize("given", [np.ones((4, 4)), networkx.complete_graph(4), [[1], [2], [3], [0]]], ids=type)
def test_graphs_may_be_given(given):
    for sync in (spt.Hop(given), spt.Gossip(given)):
        sync.require_fitting(4)
        assert sync.graph_for(4).ranks == 4
    one = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    for alone in (np.ones((1, 1)), networkx.complete_graph(1)):
        spt.distribute(optimizer, one, sync=spt.Hop(alone), comm=MPI.COMM_SELF).finish()


def test_one_rank_takes_any_graph():
    for sync in (spt.Hop(), spt.Hop("hosts"), spt.Hop("ring", backup=3), spt.Gossip("ring")):
        sync.require_fitting(1)


def test_gossip_wants_a_seed():
    with pytest.raises(ValueError, match="Gossip: expected seed to be a number"):
        spt.Gossip(seed=0.5)


def test_gamma_is_small_where_little_is_sent():
    on = graph("ring-based", 8)
    assert spt.Hop(order="serial", density=0.01).gamma_on(on) == pytest.approx(0.03)
    assert spt.Hop(order="serial", density=1.0).gamma_on(on) == 1
    assert spt.Hop(order="serial", density=0.01, gamma=0.2).gamma_on(on) == 0.2


@pytest.mark.parametrize("sync", [spt.Hop(), spt.Gossip(), spt.Hop(order="serial", density=0.5)], ids=str)
def test_alone_it_is_training_as_usual(sync):
    torch.manual_seed(0)
    models = [nn.Linear(6, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    handle = spt.distribute(optimizers[0], models[0], sync=sync, comm=MPI.COMM_SELF)
    for step in range(4):
        inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(step))
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).square().sum().backward()
            optimizer.step()
    handle.finish()
    assert (handle.iteration, handle.graph.ranks, handle.distance) == (4, 1, 0.0)
    torch.testing.assert_close(models[0].weight, models[1].weight)
