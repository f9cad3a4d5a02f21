"""One rank: what the wrapper does to gradients, optimizer, scaler and checkpoints. Several ranks are in tests/mpi."""

import copy
import io

import numpy as np
import pytest
import torch
from cost.profiles import ethernet
from mpi4py import MPI
from torch import nn

import spardl
import spardl.torch as spt


def small_model(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1} | options)


def distribute(optimizer, model, sync=None, **options):
    return spt.distribute(optimizer, model, sync=sync or spt.SparDL(density=0.1), comm=MPI.COMM_SELF, **options)


def batches(count, seed=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5, 8, generator=generator).to(dtype) for _ in range(count)]


def backward(model, inputs):
    model(inputs).square().sum().backward()


def train(model, optimizer, steps=5, set_to_none=True, start=0):
    for inputs in batches(start + steps)[start:]:
        optimizer.zero_grad(set_to_none=set_to_none)
        backward(model, inputs)
        optimizer.step()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.fixture(autouse=True)
def _own_handles():
    """Handles left by one test would forbid the next to distribute the same parameters, were ids reused."""
    yield
    for handle in list(spt.handle.live_handles):
        handle.remove()


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


# -- momentum, clipping, warm-up ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exclude", "masking"), [((), False), (["*.bias"], False), (["*"], True)])
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_correction_with_everything_sent_is_momentum(nesterov, exclude, masking):
    plain, model = small_model(dtype=torch.float64), small_model(dtype=torch.float64)
    options = {"lr": 0.01, "weight_decay": 0.1}
    reference = sgd(plain, momentum=0.9, nesterov=nesterov, **options)
    optimizer = sgd(model, **options)
    sync = spt.SparDL(density=1.0, momentum=0.9, nesterov=nesterov, momentum_masking=masking)
    distribute(optimizer, model, sync, exclude=exclude)
    for network, optim in ((plain, reference), (model, optimizer)):
        for inputs in batches(8, dtype=torch.float64):
            optim.zero_grad()
            backward(network, inputs)
            optim.step()
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-9, atol=1e-12)


def test_momentum_correction_step_by_step():
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = sgd(model, lr=1.0)
    handle = distribute(optimizer, model, spt.SparDL(density=0.5, momentum=0.5))
    velocity, owed = np.zeros(4), np.zeros(4)
    for grad in ([8.0, 4.0, 2.0, 1.0], [1.0, 1.0, 4.0, 1.0], [0.0, 0.0, 1.0, 8.0]):
        velocity = 0.5 * velocity + grad
        owed += velocity
        sent = np.argsort(-np.abs(owed), kind="stable")[:2]
        result = np.zeros(4)
        result[sent] = owed[sent]
        owed[sent] = velocity[sent] = 0
        model.weight.grad = torch.tensor([grad])
        handle.synchronize()
        np.testing.assert_array_equal(model.weight.grad[0].numpy(), result)
        np.testing.assert_array_equal(handle.residuals["weight"][0].numpy(), owed)
        optimizer.step()


def test_momentum_in_both_places_is_refused():
    model = small_model()
    for optimizer in (sgd(model, momentum=0.9), torch.optim.Adam(model.parameters())):
        with pytest.raises(ValueError, match=r"so the optimizer must have none; got (SGD|Adam) with momentum"):
            distribute(optimizer, model, spt.SparDL(density=0.1, momentum=0.9))


def test_local_clip_limits_what_is_handed_in():
    model = nn.Linear(3, 1, bias=False)
    optimizer = sgd(model)
    handle = distribute(optimizer, model, spt.SparDL(density=1.0, local_clip=1.0))
    for grad, expected in (([3.0, 4.0, 0.0], [0.6, 0.8, 0.0]), ([0.3, 0.4, 0.0], [0.3, 0.4, 0.0])):
        model.weight.grad = torch.tensor([grad])
        handle.synchronize()
        torch.testing.assert_close(model.weight.grad, torch.tensor([expected]))
        optimizer.step()


def test_warmup_follows_the_steps_and_survives_a_checkpoint():
    sync = spt.SparDL(density=spt.Warmup(0.05, steps=4, start=0.8, stages=2))
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model, sync)
    sent = []
    for _ in range(6):
        train(model, optimizer, 1)
        sent.append(sum(int((p.grad != 0).sum()) for p in model.parameters()))
    assert sent == [170, 170, 42, 42, 11, 11]
    state = handle.state_dict()
    handle.remove()
    distribute(optimizer, model, sync).load_state_dict(state)
    train(model, optimizer, 1)
    assert sum(int((p.grad != 0).sum()) for p in model.parameters()) == 11


def test_weight_decay_acts_everywhere_at_once():
    model = nn.Linear(100, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = sgd(model, lr=0.1, weight_decay=0.5)
    distribute(optimizer, model, spt.SparDL(density=0.01))
    model.weight.grad = torch.zeros(1, 100)
    optimizer.step()
    torch.testing.assert_close(model.weight, torch.full((1, 100), 0.95))


# -- non-finite gradients and AMP --------------------------------------------------------------------------------------


def state_bytes(handle):
    return b"".join(bucket["residual"].numpy().tobytes() for bucket in handle.state_dict()["buckets"])


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


# -- checkpoints -------------------------------------------------------------------------------------------------------


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


# -- what users get wrong ----------------------------------------------------------------------------------------------


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
