"""One rank: gradients that are accumulated, clipped, missing, frozen, sparse or of half precision."""

import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, train, weights

import spardl.torch as spt

# -- accumulation, clipping, unused and frozen parameters --------------------------------------------------------------


@pytest.mark.parametrize("overlap", [True, False])
def test_no_sync_adds_gradients_up(overlap):
    plain, model = small_model(), small_model()
    first, second, third = batches(3)
    for inputs in (first, second, third):
        backward(plain, inputs)
    sgd(plain).step()
    optimizer = sgd(model)
    handle = distribute(optimizer, model, spt.SparDL(density=1.0), overlap=overlap)
    train(model, optimizer, 1)
    model.load_state_dict(small_model().state_dict())
    optimizer.zero_grad()
    with handle.no_sync():
        backward(model, first)
        with handle.no_sync():
            backward(model, second)
    backward(model, third)
    optimizer.step()
    assert torch.equal(weights(model), weights(plain))
    assert handle.stats.steps == 2


def test_clipping_after_synchronize_and_no_second_synchronisation():
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    for inputs in batches(3):
        optimizer.zero_grad()
        backward(model, inputs)
        handle.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        clipped = [p.grad.clone() for p in model.parameters()]
        before = weights(model)
        optimizer.step()
        expected = before - 0.1 * torch.cat([grad.reshape(-1) for grad in clipped])
        assert torch.equal(weights(model), expected)
    assert handle.stats.steps == 3


def test_unused_parameters_count_as_zero_and_pay_what_they_owe():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.left, self.right = nn.Linear(8, 4), nn.Linear(8, 4)

    model = TwoHeads()
    optimizer = sgd(model)
    handle = distribute(optimizer, model, spt.SparDL(density=0.5))
    handed_in, applied = torch.zeros(72), torch.zeros(72)
    for number, inputs in enumerate(batches(6)):
        optimizer.zero_grad()
        head = (model.left, model.right)[number % 2]
        head(inputs).sum().backward()
        handed_in += torch.cat(
            [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()]
        )
        handle.synchronize()
        applied += torch.cat([p.grad.flatten() for p in model.parameters()])
        optimizer.step()
    owed = handle.residuals
    torch.testing.assert_close(applied + torch.cat([owed[n].flatten() for n, _ in model.named_parameters()]), handed_in)


def test_gradients_set_by_hand_are_taken_and_stale_ones_are_not():
    model = nn.Linear(2, 1, bias=False)
    optimizer = sgd(model, lr=1.0)
    nn.init.zeros_(model.weight)
    handle = distribute(optimizer, model, spt.SparDL(density=1.0))
    model.weight.grad = torch.tensor([[1.0, 2.0]])
    optimizer.step()
    optimizer.step()  # no new gradient: what lies there is the last result
    assert model.weight.tolist() == [[-1.0, -2.0]]
    assert handle.stats.steps == 2
    model.weight.grad.mul_(2)  # changed by hand: this is a new one
    optimizer.step()
    assert model.weight.tolist() == [[-1.0, -2.0]]  # of zeros
    model.weight.grad.fill_(1)
    optimizer.step()
    assert model.weight.tolist() == [[-2.0, -3.0]]


def test_frozen_parameters_stay_where_they_are():
    model = small_model()
    model[0].weight.requires_grad_(False)
    optimizer = sgd(model)
    handle = distribute(optimizer, model)
    before = model[0].weight.clone()
    train(model, optimizer)
    model[2].bias.requires_grad_(False)  # later, while something is owed for it
    bias = model[2].bias.clone()
    train(model, optimizer)
    assert torch.equal(model[0].weight, before)
    assert torch.equal(model[2].bias, bias)
    assert "0.weight" not in handle.residuals
    model[0].weight.requires_grad_(True)
    optimizer.zero_grad()
    backward(model, batches(1)[0])
    with pytest.raises(RuntimeError, match=r"shape \[16, 8\] has a gradient, but was frozen"):
        optimizer.step()


def test_what_is_owed_to_a_frozen_parameter_does_not_move_it():
    model = nn.Linear(2, 1)
    optimizer = sgd(model)
    handle = distribute(optimizer, model, spt.SparDL(density=0.34))  # one of three
    model.weight.grad, model.bias.grad = torch.tensor([[5.0, 0.0]]), torch.tensor([1.0])
    optimizer.step()
    assert handle.residuals["bias"].tolist() == [1.0]
    model.bias.requires_grad_(False)
    model.bias.grad = None
    before = model.bias.clone()
    optimizer.step()
    assert torch.equal(model.bias, before)


def test_buckets_follow_backward_and_not_registration():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(16, 4), nn.Linear(8, 16)

        def forward(self, inputs):
            return self.last(self.first(inputs))

    model = Backwards()
    optimizer = sgd(model)
    handle = distribute(optimizer, model, bucket_mb=0.0004)
    train(model, optimizer, 1)
    names = [name for bucket in handle.state_dict()["buckets"] for name in bucket["names"]]
    assert [name.split(".")[0] for name in names] == ["last", "last", "first", "first"]


# -- sparse and half-precision gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sparse_embedding_gradients_stay_sparse(dtype):
    def build():
        torch.manual_seed(0)
        return nn.ModuleDict({"words": nn.Embedding(1000, 4, sparse=True), "head": nn.Linear(4, 2)}).to(dtype)

    plain, model = build(), build()
    optimizers = [sgd(plain), sgd(model)]
    handle = distribute(optimizers[1], model, spt.SparDL(density=1.0))
    for network, optimizer in zip((plain, model), optimizers, strict=True):
        for words in (torch.tensor([1, 5, 3, 999]), torch.tensor([7])):
            optimizer.zero_grad()
            network["head"](network["words"](words)).square().sum().backward()
            optimizer.step()
    assert model["words"].weight.grad.layout == torch.sparse_coo
    assert model["words"].weight.grad.values().shape == (1, 4)
    assert torch.equal(weights(model), weights(plain))
    assert [bucket["kind"] for bucket in handle.state_dict()["buckets"]] == ["sparse", "rows"]
    model["words"].weight.grad = torch.zeros(1000, 4, dtype=dtype)
    with pytest.raises(TypeError, match=r"'words.weight': expected a sparse gradient of rows"):
        optimizers[1].step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_owe_in_full_precision(dtype):
    model = small_model(dtype=dtype)
    optimizer = sgd(model, lr=0.01)
    handle = distribute(optimizer, model)
    computed = torch.zeros(212)
    applied = torch.zeros(212)
    for inputs in batches(5, dtype=dtype):
        optimizer.zero_grad()
        backward(model, inputs)
        computed += torch.cat([p.grad.float().reshape(-1) for p in model.parameters()])
        optimizer.step()
        applied += torch.cat([p.grad.float().reshape(-1) for p in model.parameters()])
        assert all(p.grad.dtype == dtype for p in model.parameters())
    owed = torch.cat([handle.residuals[name].reshape(-1) for name, _ in model.named_parameters()])
    assert owed.dtype == torch.float32
    torch.testing.assert_close(applied + owed, computed, rtol=0.02, atol=0.05)
