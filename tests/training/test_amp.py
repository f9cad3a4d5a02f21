"""One rank: non-finite gradients, with a GradScaler and without."""

import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, state_bytes, train, weights

import spardl
import spardl.torch as spt


@pytest.mark.parametrize("sync", [spt.SparDL(density=0.1), spt.Dense()], ids=["sparse", "dense"])
def test_non_finite_gradient_names_the_parameter_and_changes_nothing(sync):
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model, sync, bucket_mb=0.0003)
    train(model, optimizer)
    before, owed = weights(model), {name: r.clone() for name, r in handle.residuals.items()}
    optimizer.zero_grad()
    # In the bucket that is sent last: the others have succeeded by then, and have to be taken back.
    spoil = model[0].bias.register_hook(lambda grad: grad * torch.tensor([1.0] * 3 + [torch.nan] + [1.0] * 12))
    backward(model, batches(1)[0])
    spoil.remove()
    with pytest.raises(spardl.NonFiniteGradient, match=r"non-finite gradient of '0.bias' on rank 0"):
        optimizer.step()
    assert torch.equal(weights(model), before)
    assert all(torch.equal(handle.residuals[name], r) for name, r in owed.items())
    train(model, optimizer)


def test_grad_scaler_equals_training_without_one():
    """A scale is a power of two, so scaling and unscaling change no bit; not even when the scale changes."""
    plain, model = small_model(), small_model()
    reference, optimizer = sgd(plain, momentum=0.9), sgd(model, momentum=0.9)
    distribute(reference, plain)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    handle = distribute(optimizer, model, scaler=scaler)
    train(plain, reference, 6)
    for inputs in batches(6):
        optimizer.zero_grad()
        scaler.scale(model(inputs).square().sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**13
    assert torch.equal(weights(model), weights(plain))
    assert handle.stats.steps == 6


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale_first", [False, True])
def test_grad_scaler_skips_and_nothing_is_lost(unscale_first, fused):
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    handle = distribute(optimizer, model, scaler=scaler, bucket_mb=0.0003)

    def step(inputs):
        optimizer.zero_grad()
        scaler.scale(model(inputs).square().sum()).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    for inputs in batches(3):
        step(inputs)
    before, owed = weights(model), state_bytes(handle)
    bad = batches(1)[0]
    bad[2, 3] = torch.inf
    step(bad)
    assert torch.equal(weights(model), before)
    assert state_bytes(handle) == owed
    assert scaler.get_scale() == 2.0
    assert (handle.stats.steps, handle.stats.skipped) == (3, 1)
    optimizer.zero_grad(set_to_none=False)
    scaler.step(optimizer)  # without a backward pass, as on a rank that has run out of data: it takes part all the same
    scaler.update()
    assert handle.stats.steps == 4
    step(batches(1)[0])
    assert not torch.equal(weights(model), before)
    handle.remove()
    assert {"step", "unscale_"}.isdisjoint(vars(scaler))


def test_gradients_of_a_failed_step_are_given_back():
    """In place, where they lie in the bucket: unscaled and clipped meanwhile, they are what they were."""
    model = nn.Linear(4, 1, bias=False)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    handle = distribute(optimizer, model, spt.SparDL(density=0.5, local_clip=2.0**-4), scaler=scaler)
    scaler.scale(model(torch.ones(1, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=False)
    scaler.scale(model(torch.ones(1, 4)).sum()).backward()
    assert model.weight.grad.tolist() == [[8.0] * 4]
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(RuntimeError, match="has 2 parameters, but had 1"):
        handle.synchronize()
    optimizer.param_groups.pop()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(handle._buckets[0].reducer, "start", lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            handle.synchronize()
    assert model.weight.grad.tolist() == [[8.0] * 4]
    handle.synchronize()
    assert handle.stats.steps == 2


def test_disabled_scaler_raises_like_none():
    model = small_model()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    distribute(optimizer, model, scaler=scaler)
    bad = batches(1)[0].fill_(torch.nan)
    scaler.scale(model(bad).sum()).backward()
    with pytest.raises(spardl.NonFiniteGradient):
        scaler.step(optimizer)
