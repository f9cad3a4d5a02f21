"""One rank: what users get wrong, and what they are told."""

import copy
import gc
import weakref

import pytest
import torch
from cost.profiles import ethernet
from mpi4py import MPI
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, state_bytes, train, weights

import spardl.torch as spt


def test_optimizer_without_parameters():
    model = small_model()
    with pytest.raises(ValueError, match="the optimizer has no parameters"):
        distribute(torch.optim.SGD([{"params": []}]), model)
    for p in model.parameters():
        p.requires_grad_(False)
    with pytest.raises(ValueError, match="none of the optimizer's parameters requires a gradient"):
        distribute(sgd(model), model)


def test_distributed_twice():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    with pytest.raises(ValueError, match=r"this optimizer is distributed already; call remove\(\)"):
        distribute(optimizer, model)
    with pytest.raises(ValueError, match=r"parameter '0.weight' is distributed already, with another optimizer"):
        distribute(sgd(model), model)
    handle.remove()
    distribute(optimizer, model)


def test_two_optimizers_for_two_parts_of_a_model():
    model = small_model()
    first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2]))
    handles = distribute(first, model), distribute(second, model)
    for inputs in batches(3):
        first.zero_grad()
        second.zero_grad()
        backward(model, inputs)
        first.step()
        second.step()
    assert [handle.stats.steps for handle in handles] == [3, 3]


def test_model_not_matching_the_optimizer():
    with pytest.raises(ValueError, match=r"group 0 has a parameter of shape \[16, 8\] that is not in the model"):
        distribute(sgd(small_model()), nn.Linear(2, 2))


def test_dtype_not_supported():
    model = nn.ParameterDict({"c": nn.Parameter(torch.zeros(3, dtype=torch.complex64))})
    with pytest.raises(TypeError, match=r"parameter 'c' has dtype torch.complex64; supported are torch.float32"):
        distribute(sgd(model), model)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"optimizer": "sgd"}, "expected optimizer to be a Optimizer, got str"),
        ({"model": None}, "expected model to be a Module, got NoneType"),
        ({"sync": 0.01}, "expected sync to be a .*, got float"),
        ({"scaler": 2}, "expected scaler to be a .*, got int"),
    ],
)
def test_wrong_types(wrong, words):
    model = small_model()
    arguments = {"optimizer": sgd(model), "model": model, "sync": spt.Dense(), "comm": MPI.COMM_SELF} | wrong
    with pytest.raises(TypeError, match=words):
        spt.distribute(arguments.pop("optimizer"), arguments.pop("model"), **arguments)


def test_parameters_added_later():
    model = small_model()
    optimizer = sgd(model)
    distribute(optimizer, model)
    train(model, optimizer, 1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(RuntimeError, match=r"has 5 parameters, but had 4 when distribute\(\) was called"):
        optimizer.step()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.1), r"changed.*handle.synchronize\(\) first"),
        (lambda model: model[0].weight.grad.mul_(2), r"the gradient of '0.weight' was changed"),
        (lambda model: backward(model, batches(1)[0]), r"came again before step.*with handle.no_sync\(\)"),
    ],
)
def test_gradients_changed_in_the_first_step(change, words):
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    backward(model, batches(1)[0])
    before = weights(model)

    def step():
        change(model)
        optimizer.step()

    with pytest.raises(RuntimeError, match=words):
        step()
    assert torch.equal(weights(model), before)
    train(model, optimizer, 2)
    assert handle.stats.steps == 2


def test_a_dropped_optimizer_takes_its_handle_and_model_along():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    train(model, optimizer, 2)
    held = weakref.ref(model), weakref.ref(handle)
    del model, optimizer, handle
    gc.collect()
    assert [one() for one in held] == [None, None]


def test_gradient_changed_after_it_was_sent():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    train(model, optimizer, 1)
    owed = state_bytes(handle)
    backward(model, batches(1)[0])
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with pytest.raises(RuntimeError, match=r"changed between backward\(\) and step\(\).*handle.synchronize\(\) first"):
        optimizer.step()
    assert state_bytes(handle) == owed


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale_first", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_grad_scaler_that_nobody_told_us_of(overlap, unscale_first, fused):
    model = small_model()
    optimizer = sgd(model, fused=fused)
    before = set(vars(optimizer))
    handle = distribute(optimizer, model, overlap=overlap)
    scaler = torch.amp.GradScaler("cpu")
    train(model, optimizer, 1)
    optimizer.zero_grad()
    scaler.scale(model(batches(1)[0]).sum()).backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"stepped by a GradScaler: use distribute\(..., scaler=scaler\)"):
        scaler.step(optimizer)
    handle.remove()
    assert set(vars(optimizer)) - before <= {"grad_scale", "found_inf", "step"}
    assert vars(optimizer).get("_step_supports_amp_scaling", False) == fused


def test_second_backward_after_sending():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    train(model, optimizer, 1)
    owed = state_bytes(handle)
    optimizer.zero_grad()
    backward(model, batches(1)[0])
    with pytest.raises(RuntimeError, match=r"all but the last into `with handle.no_sync\(\):`"):
        backward(model, batches(1)[0])
    assert state_bytes(handle) == owed
    train(model, optimizer, 1)


def test_step_inside_no_sync_and_with_closure():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    with handle.no_sync():
        backward(model, batches(1)[0])
        with pytest.raises(RuntimeError, match=r"inside no_sync\(\)"):
            optimizer.step()
    with pytest.raises(TypeError, match=r"step\(closure\) cannot be distributed"):
        optimizer.step(lambda: 0.0)
    train(model, optimizer, 1)


def test_remove_gives_the_optimizer_back():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    train(model, optimizer, 2)
    backward(model, batches(1)[0])
    with pytest.raises(RuntimeError, match=r"remove\(\) between backward\(\) and step\(\)"):
        handle.remove()
    optimizer.step()
    handle.remove()
    plain = copy.deepcopy(model)
    train(model, optimizer, 2)
    train(plain, sgd(plain), 2)
    assert torch.equal(weights(model), weights(plain))
    assert handle.stats.steps == 3


def test_stats():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    assert handle.stats == spt.Stats()
    train(model, optimizer, 4)
    stats = handle.stats
    assert stats.steps == 4
    assert stats.density == 21 / 212
    owed = torch.cat([residual.flatten() for residual in handle.residuals.values()])
    assert stats.residual_norm == pytest.approx(float(owed.norm()))
    assert stats.select_seconds > 0
    assert (stats.bytes_sent, stats.dense_bytes, stats.compression) == (0, 0, 1.0)
    assert set(stats.as_dict()) >= {"bytes_sent", "compression", "wait_seconds"}


def test_ddp_hook_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"need spardl.torch.distribute"):
        spt.ddp_hook(spt.SparDL(density=0.1, momentum=0.9), MPI.COMM_SELF)
    with pytest.raises(TypeError, match=r"SparDL\(…\) or Dense\(\), got RNA; RNA needs spardl.torch.distribute"):
        spt.ddp_hook(spt.RNA(), MPI.COMM_SELF)
    with pytest.raises(TypeError, match=r"expected sync to be SparDL\(…\) or Dense\(\), got float"):
        spt.ddp_hook(0.1, MPI.COMM_SELF)
    with pytest.raises(ValueError, match=r"expected teams to divide 1 ranks"):
        spt.ddp_hook(spt.SparDL(density=0.1, teams=2), MPI.COMM_SELF)


def test_teams_that_do_not_divide_the_ranks():
    model = small_model()
    with pytest.raises(ValueError, match=r"expected teams to divide 1 ranks, i.e. one of \[1\]"):
        distribute(sgd(model), model, spt.SparDL(density=0.1, teams=3))


def test_auto_plans_for_the_density_that_lasts(caplog):
    """A warm-up starts with many gradients; the plan is for the few that follow."""
    caplog.set_level("INFO", "spardl.plan")
    model = small_model()
    optimizer = sgd(model)
    sync = spt.SparDL(density=spt.Warmup(0.01, steps=100), algorithm="auto", teams="auto", profile=ethernet(1))
    distribute(optimizer, model, sync)
    train(model, optimizer, 2)
    size = sum(p.numel() for p in model.parameters())
    assert f"n = {size:,}, k = {round(0.01 * size)}: chose " in caplog.text
