"""One rank: training that is saved and goes on."""

import io

import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, train, weights

import spardl
import spardl.torch as spt


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("sync", [spt.SparDL(density=0.1), spt.SparDL(density=0.1, momentum=0.9)])
def test_resumed_training_is_the_same_bit_for_bit(sync, gathered):
    straight = small_model()
    optimizer = sgd(straight, weight_decay=0.01)
    distribute(optimizer, straight, sync)
    train(straight, optimizer, 8)

    model = small_model()
    optimizer = sgd(model, weight_decay=0.01)
    handle = distribute(optimizer, model, sync, bucket_mb=7)
    train(model, optimizer, 4)
    saved = io.BytesIO()
    state = handle.gathered_state_dict() if gathered else handle.state_dict()
    torch.save([model.state_dict(), optimizer.state_dict(), state], saved)

    saved.seek(0)
    parts = torch.load(saved)
    resumed = small_model(seed=5)
    optimizer = sgd(resumed, weight_decay=0.01)
    resumed.load_state_dict(parts[0])
    optimizer.load_state_dict(parts[1])
    distribute(optimizer, resumed, sync).load_state_dict(parts[2])
    train(resumed, optimizer, 4, start=4)
    assert torch.equal(weights(resumed), weights(straight))


@pytest.mark.parametrize("change", ["exclude", "dense", "buckets", "channels_last", "density"])
def test_restored_with_other_settings_nothing_is_lost(change):
    def build(memory_format=torch.contiguous_format):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(48, 2)).double()
        return model.to(memory_format=memory_format)

    model = build()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    for number in range(4):
        optimizer.zero_grad()
        backward(model, torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(number)).double())
        optimizer.step()
    owed, state = handle.residuals, handle.state_dict()

    other = build(torch.channels_last if change == "channels_last" else torch.contiguous_format)
    sync = {"dense": spt.Dense(), "density": spt.SparDL(density=0.5)}.get(change, spt.SparDL(density=0.1))
    options = {"exclude": {"exclude": ["*.bias", "2.*"]}, "buckets": {"bucket_mb": 0.0001}}.get(change, {})
    handle = distribute(sgd(other), other, sync, **options)
    handle.load_state_dict(state)
    assert all(torch.equal(handle.residuals[name], residual) for name, residual in owed.items())

    handed_in = {name: torch.randn_like(p) for name, p in other.named_parameters()}
    for name, p in other.named_parameters():
        p.grad = handed_in[name].clone()
    handle.synchronize()
    for name, p in other.named_parameters():
        left = handle.residuals.get(name, 0)
        torch.testing.assert_close(p.grad + left, handed_in[name] + owed[name], rtol=0, atol=1e-12)
    sent_whole = {"dense": 4, "exclude": 3}.get(change, 0)
    assert len(handle.residuals) == 4 - sent_whole
    assert (handle.stats.steps, handle.state_dict()["steps"]) == (1, 5)


def test_a_dense_bucket_owes_what_it_took_over_until_a_step_succeeds():
    model = small_model(dtype=torch.float64)
    optimizer = sgd(model)
    handle = distribute(optimizer, model, bucket_mb=0.0003)
    for inputs in batches(3, dtype=torch.float64):
        optimizer.zero_grad()
        backward(model, inputs)
        optimizer.step()
    owed, state = handle.residuals, handle.state_dict()
    handle.remove()

    for _ in range(2):  # of the sparse handle's state, and of a dense one's that owes
        handle = distribute(optimizer, model, spt.Dense(), bucket_mb=0.0003)
        handle.load_state_dict(state)
        state = handle.state_dict()
        assert handle.stats.residual_norm > 0
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        model[0].bias.grad[3] = torch.nan  # in one of the buckets: the others have to be taken back
        with pytest.raises(spardl.NonFiniteGradient, match=r"of '0\.bias' on rank 0"):
            optimizer.step()
        assert all(torch.equal(handle.residuals[name], residual) for name, residual in owed.items())
        model[0].bias.grad[3] = 1
        handle.synchronize()
        for name, p in model.named_parameters():
            assert torch.equal(p.grad, owed[name] + 1)
        assert (handle.residuals, handle.stats.residual_norm, handle.stats.density) == ({}, 0, 1)
        assert not any("residual" in bucket for bucket in handle.state_dict()["buckets"])
        handle.remove()


def test_state_taken_before_the_first_step_and_states_that_do_not_fit():
    model = small_model()
    handle = distribute(sgd(model), model)
    before = handle.state_dict()
    handle.load_state_dict(before)
    train(model, handle._optimizer)
    state = handle.state_dict()
    assert handle.stats.residual_norm > 0
    handle.load_state_dict(before)
    assert handle.stats.residual_norm == 0
    handle.load_state_dict(state)
    assert handle.stats.residual_norm > 0
    with pytest.raises(ValueError, match="expected a state of format 1, got None"):
        handle.load_state_dict({})
    with pytest.raises(ValueError, match="this is the state of rank 3 of 4, and this process is rank 0 of 1"):
        handle.load_state_dict(state | {"ranks": 4, "rank": 3})
    with pytest.raises(ValueError, match="states of all of 4 ranks, once each, got those of"):
        spt.join_states([state | {"ranks": 4}])
    other = nn.Sequential(nn.Linear(8, 17), nn.Tanh(), nn.Linear(17, 4))
    fresh = distribute(sgd(other), other)
    with pytest.raises(ValueError, match=r"parameter '0.weight' has shape \[17, 8\] here, but \[16, 8\] in the state"):
        fresh.load_state_dict(state)
