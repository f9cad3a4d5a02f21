"""One rank: the wrapper does what plain torch does, and loses nothing. Several ranks are in test_ranks.py."""

import copy
import io

import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, train, weights

import spardl.torch as spt

# -- the same as plain torch where it must be --------------------------------------------------------------------------


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
}


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("sync", [spt.SparDL(density=1.0), spt.Dense()], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_with_everything_sent_it_is_plain_torch(name, sync, overlap, set_to_none):
    plain, model = small_model(), small_model()
    train(plain, OPTIMIZERS[name](plain.parameters()), set_to_none=set_to_none)
    optimizer = OPTIMIZERS[name](model.parameters())
    distribute(optimizer, model, sync, overlap=overlap, bucket_mb=0.0005)
    train(model, optimizer, set_to_none=set_to_none)
    assert torch.equal(weights(model), weights(plain))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_order_of_memory_is_kept(memory_format):
    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).to(memory_format=memory_format)

    plain, model = build(), build()
    optimizers = sgd(plain), sgd(model)
    distribute(optimizers[1], model, spt.SparDL(density=1.0))
    inputs = torch.randn(2, 3, 8, 8)
    for network, optimizer in zip((plain, model), optimizers, strict=True):
        backward(network, inputs)
        optimizer.step()
    assert torch.equal(weights(model), weights(plain))
    assert model[0].weight.grad.stride() == model[0].weight.stride()


def test_scheduler_state_dict_and_deepcopy_work_on_the_users_optimizer():
    model = small_model()
    optimizer = sgd(model, momentum=0.9)
    original = optimizer
    handle = distribute(optimizer, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    for _ in range(4):
        train(model, optimizer, 1)
        scheduler.step()
    assert optimizer is original
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    saved = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "model": model.state_dict(), "handle": handle.state_dict()}, saved)
    saved.seek(0)
    assert set(torch.load(saved)) == {"optimizer", "model", "handle"}  # weights_only, by default
    copied = copy.deepcopy(model)
    backward(copied, batches(1)[0])  # has no hooks
    torch.save(model, io.BytesIO())


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("exclude", [(), ["*.bias"], lambda name, p: name == "0.weight"])
def test_law_of_conservation(exclude, overlap):
    model = small_model(dtype=torch.float64)
    optimizer = sgd(model)
    handle = distribute(optimizer, model, exclude=exclude, overlap=overlap, bucket_mb=0.001)
    computed = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    applied = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for inputs in batches(10, dtype=torch.float64):
        optimizer.zero_grad()
        backward(model, inputs)
        for name, p in model.named_parameters():
            computed[name] += p.grad
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer.step()
        for name, p in model.named_parameters():
            applied[name] += (before[name] - p.detach()) / 0.1
    residuals = handle.residuals
    for name in computed:
        torch.testing.assert_close(applied[name] + residuals.get(name, 0), computed[name], rtol=0, atol=1e-9)
    assert ("0.bias" in residuals) == (exclude != ["*.bias"])
