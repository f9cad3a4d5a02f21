"""RNA on one rank: what it refuses, and what it tells. Several ranks are in programs/rna.py."""

import numpy as np
import pytest
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt
from spardl import NonFiniteGradient


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


def test_what_is_owed_and_what_it_took_are_counted():
    model, optimizer, handle = distribute(spt.RNA(reduce=spt.SparDL(density=0.2), policy=spt.All()))
    for _ in range(4):
        step(model, optimizer)
        assert handle.stats.residual_norm > 0  # while the thread runs, too
    handle.settle()
    assert handle.stats.residual_norm == pytest.approx(float(np.linalg.norm(handle.residual)))
    assert handle.stats.communicate_seconds > 0
    handle.finish()
    assert handle.stats.residual_norm == pytest.approx(float(np.linalg.norm(handle.residual)))


def test_totals_are_since_distribute_and_steps_in_a_state_of_the_whole_training():
    sync = spt.RNA(reduce=spt.SparDL(density=0.2), policy=spt.All())
    model, optimizer, handle = distribute(sync)
    for _ in range(3):
        step(model, optimizer)
    handle.finish()
    other = spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF)
    other.load_state_dict(handle.state_dict())
    assert (other.stats.steps, other.stats.dense_bytes, other.state_dict()["steps"]) == (0, 0, 3)
    step(model, optimizer)
    other.finish()
    assert (other.stats.steps, other.state_dict()["steps"]) == (1, 4)
    assert other.stats.density == pytest.approx(0.2, abs=0.01)


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


def test_parameters_added_later():
    model, optimizer, handle = distribute(spt.RNA())
    step(model, optimizer)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(RuntimeError, match=r"has 3 parameters, but had 2 when distribute\(\) was called"):
        step(model, optimizer)
    with pytest.raises(RuntimeError, match="has 3 parameters"):
        handle.finish()


def test_parameters_may_be_added_before_remove():
    """As the error advises. Rounds that are still to come are for the parameters there were."""
    model, optimizer, handle = distribute(spt.RNA())
    step(model, optimizer)
    late = nn.Parameter(torch.zeros(3))
    late.grad = torch.ones(3)
    optimizer.add_param_group({"params": [late]})
    handle.remove()
    assert handle.stats.steps == 1
    assert torch.equal(late, torch.zeros(3))


def test_a_parameter_unfrozen_later():
    model = nn.Linear(20, 5)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = spt.distribute(optimizer, model, sync=spt.RNA(), comm=MPI.COMM_SELF)
    step(model, optimizer)
    model.bias.requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"of shape \[5\] has a gradient, but was frozen .*call handle.remove\(\)"):
        step(model, optimizer)
    with pytest.raises(RuntimeError, match="was frozen"):
        handle.finish()
    with pytest.raises(RuntimeError, match="was frozen"):
        handle.state_dict()
    with spt.distribute(optimizer, model, sync=spt.RNA(), comm=MPI.COMM_SELF) as handle:  # as it was told
        step(model, optimizer)
    assert handle.stats.steps == 1


def test_grad_scaler_that_nobody_told_us_of():
    model, optimizer, handle = distribute(spt.RNA())
    assert vars(optimizer)["_step_supports_amp_scaling"]
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(3, 20)).sum()).backward()
    with pytest.raises(RuntimeError, match="stepped by a GradScaler, which RNA does not know"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="stepped by a GradScaler"):
        handle.finish()


def test_finish_leaves_no_trace_of_looking_for_scalers():
    _, optimizer, handle = distribute(spt.RNA())
    handle.finish()
    assert "_step_supports_amp_scaling" not in vars(optimizer)


def test_a_non_finite_gradient_is_named():
    model, optimizer, handle = distribute(spt.RNA())
    model(torch.ones(3, 20)).sum().backward()
    model.bias.grad[2] = torch.inf
    with pytest.raises(NonFiniteGradient, match="of 'bias' on rank 0 at index 2: inf") as caught:
        optimizer.step()
    assert caught.value.index == 102  # of all gradients
    with pytest.raises(NonFiniteGradient):
        handle.finish()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("local_steps", [False, True])
def test_sparse_gradients_are_made_dense(local_steps, dtype):
    """Plain SGD with them is the same as with dense ones."""
    after = []
    for sparse in (False, True):
        torch.manual_seed(0)
        model = nn.Embedding(30, 4, sparse=sparse, dtype=dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = spt.RNA(local_steps=local_steps)
        with spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF) as handle:
            for rows in ([3, 5, 3], [5, 29]):
                optimizer.zero_grad()
                model(torch.tensor(rows)).square().sum().backward()
                optimizer.step()
                handle.settle()
        after.append(model.weight.detach())
    assert torch.equal(*after)


class Rateless(torch.optim.Optimizer):
    """A step of fixed length, without a learning rate among its options."""

    def __init__(self, params):
        super().__init__(params, {"length": 0.5})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad.sign(), alpha=group["length"])


@pytest.mark.parametrize("options", [{}, {"linear_scaling": False, "local_steps": True}])
def test_an_optimizer_without_learning_rate_is_refused_where_one_is_needed(options):
    model = nn.Linear(20, 5)
    with pytest.raises(ValueError, match=r"a number 'lr' in every group of Rateless; group 0 has None"):
        spt.distribute(Rateless(model.parameters()), model, sync=spt.RNA(**options), comm=MPI.COMM_SELF)


def test_an_optimizer_without_learning_rate_is_taken_where_none_is_needed():
    model = nn.Linear(20, 5)
    optimizer = Rateless(model.parameters())
    before = model.bias.detach().clone()
    with spt.distribute(optimizer, model, sync=spt.RNA(linear_scaling=False), comm=MPI.COMM_SELF):
        step(model, optimizer)
    assert torch.equal(model.bias, before - 0.5)


def test_sparse_adam_is_refused():
    model = nn.Embedding(30, 4, sparse=True)
    with pytest.raises(ValueError, match="RNA applies dense gradients, which SparseAdam does not take"):
        spt.distribute(torch.optim.SparseAdam(model.parameters()), model, sync=spt.RNA(), comm=MPI.COMM_SELF)


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
