"""What goes wrong on one rank becomes an error on all, in time; what can go on goes on."""

import torch
from mpi.programs.checks import world
from setting import TEAMS, P, assert_same_weights, backward, batch, me, raises, small_model, weights
from torch import nn

import spardl
import spardl.torch as spt

LAST = P - 1


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.01} | options)


def build(model, optimizer, **options):
    defaults = {"sync": spt.SparDL(density=0.05, teams=TEAMS), "bucket_mb": 0.0005, "timeout": 5}
    return spt.distribute(optimizer, model, **defaults | options)


def train(model, optimizer, steps, scaler=None):
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, batch(me, step), scaler)
        (scaler or optimizer).step(*[optimizer] if scaler else [])
        if scaler:
            scaler.update()
        assert_same_weights(model)


def owed_bytes(handle):
    return {name: residual.numpy().tobytes() for name, residual in handle.residuals.items()}


def spoil(model, rank, layer=0):
    """One gradient of one rank is NaN, in the bucket that is sent last."""
    if me == rank:
        return model[layer].bias.register_hook(lambda grad: grad * torch.nan)
    return None


def different_models():
    different = nn.Sequential(nn.Linear(8, 33), nn.BatchNorm1d(33)) if me == LAST else small_model()
    words = ["first in part 0", "'parameter 0.weight [32, 8] float32' on rank", "[33, 8] float32' on rank"]
    raises(ValueError, words, lambda: build(different, sgd(different)))
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters()) if me == LAST else sgd(model)
    raises(ValueError, ["'SGD group 0", "but 'Adam group 0", f"on rank {LAST}"], lambda: build(model, optimizer))
    kind = TypeError if me == LAST else ValueError
    raises(kind, ["expected sync to be"], lambda: build(model, sgd(model), sync=None if me == LAST else spt.Dense()))
    teams = spt.SparDL(density=0.1, teams=7)
    raises(ValueError, [f"teams to divide {P} ranks"], lambda: build(model, sgd(model), sync=teams))
    raises(ValueError, [f"teams to divide {P} ranks"], lambda: spt.ddp_hook(teams, world))
    densities = spt.SparDL(density=0.1 if me == LAST else 0.2)
    raises(ValueError, ["the ranks disagree on sync"], lambda: build(model, sgd(model), sync=densities))


def nan_without_scaler(sync):
    model = small_model()
    optimizer = sgd(model)
    handle = build(model, optimizer, sync=sync)
    train(model, optimizer, 3)
    before, owed = weights(model), owed_bytes(handle)
    hook = spoil(model, LAST)
    optimizer.zero_grad()
    backward(model, batch(me, 3))
    error = raises(spardl.NonFiniteGradient, ["'0.bias'", f"on rank {LAST}"], optimizer.step)
    assert error.rank == LAST
    assert torch.equal(weights(model), before)
    assert owed_bytes(handle) == owed
    if hook:
        hook.remove()
    train(model, optimizer, 2)
    handle.remove()


def nan_with_scaler(sync, **options):
    model = small_model()
    optimizer = sgd(model, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    handle = build(model, optimizer, sync=sync, scaler=scaler)
    train(model, optimizer, 3, scaler)
    before, owed = weights(model), owed_bytes(handle)
    hook = spoil(model, 0, layer=3)
    train(model, optimizer, 1, scaler)
    assert torch.equal(weights(model), before)
    assert owed_bytes(handle) == owed
    assert world.allgather(scaler.get_scale()) == [4.0] * P
    if hook:
        hook.remove()
    train(model, optimizer, 2, scaler)
    assert not torch.equal(weights(model), before)
    assert (handle.stats.steps, handle.stats.skipped) == (5, 1)
    handle.remove()


def misuse_on_one_rank():
    model = small_model()
    optimizer = sgd(model)
    handle = build(model, optimizer, overlap=False)
    train(model, optimizer, 2)
    owed = owed_bytes(handle)
    optimizer.zero_grad()
    backward(model, batch(me, 2))
    if me == LAST:
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    raises(RuntimeError, ["has 7 parameters, but had 6"], optimizer.step)
    assert owed_bytes(handle) == owed
    if me == LAST:
        optimizer.param_groups.pop()
    optimizer.step()  # the same gradients, handed in again
    assert_same_weights(model)
    handle.remove()


def misuse_in_the_first_step(change, words):
    """Of one rank or all: told everywhere, before anything was sent; what is right after that goes on."""
    for wrong in ([LAST], range(P)):
        model = small_model()
        optimizer = sgd(model)
        handle = build(model, optimizer)
        backward(model, batch(me, 0))
        before = weights(model)

        def step(model=model, optimizer=optimizer, wrong=wrong):
            if me in wrong:
                change(model)
            optimizer.step()

        raises(RuntimeError, words, step)
        assert torch.equal(weights(model), before)
        train(model, optimizer, 3)
        handle.remove()


def sparse_and_absent_rows():
    """Ranks touch different words; one touches none at all."""
    torch.manual_seed(me)
    model = nn.ModuleDict({"words": nn.Embedding(50, 3, sparse=True), "head": nn.Linear(3, 1)})
    optimizer = sgd(model, lr=0.5)
    handle = build(model, optimizer, sync=spt.SparDL(density=1.0))
    plain = nn.ModuleDict({"words": nn.Embedding(50, 3), "head": nn.Linear(3, 1)})
    plain.load_state_dict(model.state_dict())
    reference = sgd(plain, lr=0.5)

    def words(rank, step):
        return torch.arange(3) * (rank + 1) + step

    for step in range(4):
        optimizer.zero_grad()
        if me != LAST or P == 1 or step == 2:
            model["head"](model["words"](words(me, step))).square().sum().backward()
        optimizer.step()
        assert_same_weights(model)
        reference.zero_grad()
        for rank in range(P):
            if rank != LAST or P == 1 or step == 2:
                plain["head"](plain["words"](words(rank, step))).square().sum().backward()
        for p in plain.parameters():
            p.grad /= P
        reference.step()
        torch.testing.assert_close(weights(model), weights(plain), rtol=1e-5, atol=1e-5)
    handle.remove()


def a_rank_that_does_not_step():
    model = small_model()
    optimizer = sgd(model)
    handle = build(model, optimizer, timeout=2)
    train(model, optimizer, 2)
    owed = owed_bytes(handle)
    optimizer.zero_grad()
    if me != LAST:
        backward(model, batch(me, 2))
        error = raises(spardl.PeerTimeout, [f"rank {LAST}"], optimizer.step)
        assert error.ranks == (LAST,)
        assert owed_bytes(handle) == owed
    world.Barrier()
    handle.remove()
    build(model, optimizer)
    train(model, optimizer, 1)  # it is back


different_models()
for sync in (spt.SparDL(density=0.05, teams=TEAMS), spt.Dense(), spt.SparDL(density=0.05, momentum=0.9)):
    nan_without_scaler(sync)
    nan_with_scaler(sync)
nan_with_scaler(spt.SparDL(density=0.05), fused=True)
misuse_on_one_rank()
misuse_in_the_first_step(
    lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    ["was changed between backward() and step()", "handle.synchronize() first"],
)
misuse_in_the_first_step(
    lambda model: backward(model, batch(me, 1)), ["came again before step()", "`with handle.no_sync():`"]
)
sparse_and_absent_rows()
if P > 1:
    a_rank_that_does_not_step()
