"""Partial Reduce in groups of everyone is all-reduce SGD (T-PR-11): with plain steps, momentum, Nesterov, decay."""

import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, small_model, weights
from training.system_world import make_replicas, meet, train

import spardl.torch as spt

STEPS = 7
OPTIONS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampened": {"momentum": 0.9, "dampening": 0.3},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"weight_decay": 0.1},
    "all": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
}


def everyone(ranks, **options):
    return spt.PartialReduce(group=ranks, **{"weights": "constant"} | options)


def model_with_statistics():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4)).double()


def plain_model():
    return small_model(dtype=torch.float64)


def sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, lr=0.01, **options)


def data_of(ranks, steps=STEPS):
    return [batches(steps, seed=rank + 1, dtype=torch.float64) for rank in range(ranks)]


def all_reduced(ranks, make_model, make_optimizer):
    """Models and optimizers that step with the mean of all gradients, and whose buffers are their own."""
    models = [make_model() for _ in range(ranks)]
    optimizers = [make_optimizer(model.parameters()) for model in models]
    for inputs in zip(*data_of(ranks), strict=True):
        for model, optimizer, own in zip(models, optimizers, inputs, strict=True):
            optimizer.zero_grad()
            backward(model, own)
        for copies in zip(*(model.parameters() for model in models), strict=True):
            mean = torch.stack([copy.grad for copy in copies]).mean(0)
            for copy in copies:
                copy.grad = mean.clone()
        for optimizer in optimizers:
            optimizer.step()
    return models, optimizers


def partially_reduced(ranks, sync, make_model, make_optimizer, seed=1):
    replicas = make_replicas(ranks, sync, make_model, make_optimizer)
    train(replicas, data_of(ranks), seed)
    return replicas


def assert_same(one, other):
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_groups_of_everyone_are_all_reduce_sgd(ranks, options):
    (reference, *_), _ = all_reduced(ranks, plain_model, sgd(**options))
    replicas = partially_reduced(ranks, everyone(ranks), plain_model, sgd(**options))
    for replica in replicas:
        assert_same(weights(replica.model), weights(reference))
        assert replica.system.updates == STEPS
        assert replica.system.metrics.contributors == [ranks] * STEPS
    assert not torch.equal(weights(reference), weights(plain_model()))
    averaged = weights(replicas[0].model)
    meet(replicas)
    for replica in replicas:
        assert_same(weights(replica.model), averaged)
        assert torch.equal(weights(replica.model), weights(replicas[0].model))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_running_means_are_the_average_of_everyones_own(ranks):
    """As if each rank had kept its own until the end."""
    models, _ = all_reduced(ranks, model_with_statistics, sgd(momentum=0.9))
    replicas = partially_reduced(ranks, everyone(ranks), model_with_statistics, sgd(momentum=0.9))
    for replica in replicas:
        assert_same(weights(replica.model), weights(models[0]))
        for name in ("running_mean", "running_var"):
            own = torch.stack([getattr(model[1], name) for model in models])
            assert_same(getattr(replica.model[1], name), own.mean(0))
            assert (own[0] - own[1]).abs().max() > 1e-3
        assert replica.model[1].num_batches_tracked == STEPS


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("state", ["local", "average"])
def test_momentum_is_that_of_all_reduce_sgd_where_it_is_averaged(ranks, state):
    """Where it is not, each rank has its own, of which the mean is the same."""
    _, (reference, *_) = all_reduced(ranks, plain_model, sgd(momentum=0.9))
    replicas = partially_reduced(ranks, everyone(ranks, optimizer_state=state), plain_model, sgd(momentum=0.9))
    for number, expected in enumerate(reference.state_dict()["state"].values()):
        owned = [replica.optimizer.state_dict()["state"][number]["momentum_buffer"] for replica in replicas]
        assert_same(torch.stack(owned).mean(0), expected["momentum_buffer"])
        assert torch.equal(owned[0], owned[1]) == (state == "average")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_with_adam_it_is_not_all_reduce(ranks):
    """Whose step is not linear in the gradient: the mean of steps is not the step with the mean."""

    def adam(parameters):
        return torch.optim.Adam(parameters, lr=0.01)

    for state in ("local", "average", "adopt"):
        (reference, *_), _ = all_reduced(ranks, plain_model, adam)
        replicas = partially_reduced(ranks, everyone(ranks, optimizer_state=state), plain_model, adam)
        assert (weights(replicas[0].model) - weights(reference)).abs().max() > 1e-3


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("fill", [None, "newest", "nearest", "stalest"])
def test_dynamic_weights_of_equal_iterations_are_constant_ones(ranks, fill):
    constant, dynamic = (
        partially_reduced(ranks, sync, plain_model, sgd(momentum=0.9))
        for sync in (everyone(ranks), everyone(ranks, weights="dynamic", fill=fill))
    )
    for one, other in zip(constant, dynamic, strict=True):
        assert torch.equal(weights(one.model), weights(other.model))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_differences_of_all_weights_are_the_weights(ranks):
    """Sent as SparDL does, with nothing left out."""
    (reference, *_), _ = all_reduced(ranks, model_with_statistics, sgd(momentum=0.9))
    sync = everyone(ranks, reduce=spt.SparDL(density=1.0), global_every=3)
    for replica in partially_reduced(ranks, sync, model_with_statistics, sgd(momentum=0.9)):
        assert_same(weights(replica.model), weights(reference))


@pytest.mark.parametrize("seed", range(5))
def test_who_comes_first_does_not_matter(seed):
    one, other = (partially_reduced(4, everyone(4), plain_model, sgd(momentum=0.9), chance) for chance in (None, seed))
    for first, second in zip(one, other, strict=True):
        assert torch.equal(weights(first.model), weights(second.model))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("reduce", [spt.Dense(), spt.SparDL(density=0.1)])
def test_pairs_end_with_the_exact_average_of_all(seed, reduce):
    """Ranks make different numbers of steps, and none in the end has the model of another."""
    sync = spt.PartialReduce(group=2, weights="constant", reduce=reduce)
    replicas = make_replicas(4, sync, plain_model, sgd())
    train(replicas, [own[: 3 + rank] for rank, own in enumerate(data_of(4))], seed)
    before = torch.stack([weights(replica.model) for replica in replicas])
    assert not torch.equal(before[0], before[1])
    latest = max(replica.system.updates for replica in replicas)
    meet(replicas)
    for replica in replicas:
        assert_same(weights(replica.model), before.mean(0))
        assert torch.equal(weights(replica.model), weights(replicas[0].model))
        assert replica.system.updates == latest
