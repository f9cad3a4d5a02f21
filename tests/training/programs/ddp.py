"""The hook for DistributedDataParallel: same bits on all ranks, nothing lost when DDP lays buckets out anew."""

import sys

import numpy as np
import torch
from mpi.programs.checks import world
from setting import TEAMS, P, assert_same_weights, me, raises
from torch import distributed, nn

import spardl
import spardl.torch as spt

distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=me, world_size=P)


def build(hook, dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 2000), nn.Tanh(), nn.Linear(2000, 300), nn.Tanh(), nn.Linear(300, 5)).to(dtype)
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    parallel.register_comm_hook(None, hook)
    return model, parallel, torch.optim.SGD(model.parameters(), lr=0.01)


def inputs(rank, step, dtype=torch.float64):
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(100 * step + rank)).to(dtype)


def flat(model, what):
    return torch.cat([what(p).reshape(-1) for p in model.parameters()])


def own_gradient(model, step):
    twin = nn.Sequential(*model)  # the same modules, without DDP's hooks on its forward
    grads = torch.autograd.grad(twin(inputs(me, step)).square().sum(), list(model.parameters()))
    return torch.cat([grad.reshape(-1) for grad in grads])


class TwoDtypes(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(64, 2000), nn.Linear(2000, 300)).double()
        self.head = nn.Linear(300, 1000, bias=False)

    def forward(self, data):
        return self.head(self.body(data).float())


def first_bucket_stays_as_it_was():
    """DDP reduces it before we see that those after it are laid out anew."""
    model = TwoDtypes()
    grads = torch.autograd.grad(model(inputs(me, 0)).square().sum(), list(model.parameters()))
    hook = spt.ddp_hook(spt.SparDL(density=0.1), timeout=20)
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    parallel.register_comm_hook(None, hook)
    applied = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(3):
        parallel.zero_grad()
        parallel(inputs(me, 0)).square().sum().backward()
        for result, p in zip(applied, model.parameters(), strict=True):
            result += P * p.grad
    owed = hook.state_dict(model)["residuals"]
    for (name, _), grad, result in zip(model.named_parameters(), grads, applied, strict=True):
        total = (3 * grad.double().flatten() - owed[name]).numpy()
        world.Allreduce(total.copy(), total)
        np.testing.assert_allclose(result.flatten(), total, rtol=0, atol=1e-5)


first_bucket_stays_as_it_was()
hook = spt.ddp_hook(spt.SparDL(density=0.01, teams=TEAMS), timeout=20)
model, parallel, optimizer = build(hook)
handed_in, applied = torch.zeros(0), torch.zeros(0)
for step in range(5):
    mine = own_gradient(model, step)
    optimizer.zero_grad()
    parallel(inputs(me, step)).square().sum().backward()
    result = flat(model, lambda p: p.grad)
    assert 0 < float((result != 0).double().mean()) <= 0.011
    optimizer.step()
    assert_same_weights(model)
    handed_in = mine if step == 0 else handed_in + mine
    applied = result.clone() if step == 0 else applied + result
    owed = hook.state_dict(model)["residuals"]
    left = torch.cat([owed[name] for name, _ in model.named_parameters()])
    total = np.empty(len(left))
    world.Allreduce((handed_in - left).numpy(), total)
    np.testing.assert_allclose(P * applied.numpy(), total, rtol=0, atol=1e-9)

# A checkpoint of the residuals, loaded into another hook, is what that hook owes.
other = spt.ddp_hook(spt.SparDL(density=0.01, teams=TEAMS), timeout=20)
other.load_state_dict(model, hook.state_dict(model))
restored = other.state_dict(model)
assert restored["steps"] == 5
assert all(torch.equal(restored["residuals"][name], residual) for name, residual in owed.items())

# A dense hook pays at once what it takes over, unless its step fails.
dense = spt.ddp_hook(spt.Dense(), scaler=torch.amp.GradScaler("cpu", init_scale=1.0), timeout=20)
model, parallel, optimizer = build(dense)
parallel(inputs(me, 0)).sum().backward()  # DDP has one bucket until it knows the order, then two
dense.load_state_dict(model, {"steps": 5, "residuals": owed})
spoil = model[0].bias.register_hook(lambda grad: grad * (torch.nan if me == P - 1 else 1))
parallel(inputs(me, 0)).sum().backward()
spoil.remove()
kept = dense.state_dict(model)["residuals"]
assert all(torch.equal(kept[name], residual) for name, residual in owed.items())
mine = own_gradient(model, 0) + torch.cat([owed[name] for name, _ in model.named_parameters()])
optimizer.zero_grad()
parallel(inputs(me, 0)).square().sum().backward()
world.Allreduce(mine.numpy(), total)
np.testing.assert_allclose(P * flat(model, lambda p: p.grad).numpy(), total, rtol=0, atol=1e-9)
assert dense.state_dict(model)["residuals"] == {}

# Dense equals DDP's own mean.
for sync in (spt.Dense(), spt.SparDL(density=1.0)):
    hook = spt.ddp_hook(sync, timeout=20)
    model, parallel, optimizer = build(hook)
    for step in range(3):
        mine = own_gradient(model, step)
        mean = torch.from_numpy(world.allreduce(mine.numpy())) / P
        parallel(inputs(me, step)).square().sum().backward()
        torch.testing.assert_close(flat(model, lambda p: p.grad), mean)
        optimizer.step()
        optimizer.zero_grad()

# A NaN on one rank raises on all, with the parameter's name if the hook knows the model; with a scaler all skip.
loss = parallel(inputs(me, 0)).sum() * (torch.nan if me == P - 1 else 1)
words = [f"on rank {P - 1}", "of a parameter of shape", "model=model", "use ddp_hook(..., scaler=scaler)"]
raises(spardl.NonFiniteGradient, words, loss.backward)
for wrapped in (False, True):
    model = nn.Sequential(nn.Linear(64, 40), nn.Tanh(), nn.Linear(40, 30))
    parallel = nn.parallel.DistributedDataParallel(model)
    parallel.register_comm_hook(None, spt.ddp_hook(spt.Dense(), timeout=20, model=parallel if wrapped else model))
    model[2].bias.register_hook(lambda grad: grad * (torch.nan if me == P - 1 else 1))
    loss = parallel(inputs(me, 0, torch.float32)).sum()
    raises(spardl.NonFiniteGradient, [f"gradient of '2.bias' on rank {P - 1}"], loss.backward)

scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
hook = spt.ddp_hook(spt.SparDL(density=0.1), scaler=scaler, timeout=20)
model, parallel, optimizer = build(hook, torch.float32)
for step in range(4):
    before = flat(model, lambda p: p.detach()).clone()
    optimizer.zero_grad()
    loss = parallel(inputs(me, step, torch.float32)).square().sum()
    scaler.scale(loss * (torch.inf if me == 0 and step == 2 else 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert_same_weights(model)
    assert torch.equal(before, flat(model, lambda p: p.detach())) == (step == 2)
assert world.allgather(scaler.get_scale()) == [2.0] * P
distributed.destroy_process_group()
