"""Bit-identical weights on all ranks after every step; with everything sent, those of training on all data at once."""

import itertools

import torch
from setting import TEAMS, P, assert_same_weights, backward, batch, me, small_model, weights
from torch import nn

import spardl.torch as spt

OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}
SYNCS = [
    spt.SparDL(density=0.05, teams=TEAMS),
    spt.SparDL(density=spt.Warmup(0.05, steps=3), wire_dtype="bf16"),
    spt.Dense(),
]


def train(name, sync, *, overlap, accumulate, clip, steps=5):
    """Also checks that all ranks start from rank 0's weights and end every step with the same."""
    model = small_model(seed=me)
    optimizer = OPTIMIZERS[name](model.parameters())
    handle = spt.distribute(optimizer, model, sync=sync, overlap=overlap, bucket_mb=0.0005, exclude=["1.*"])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step in range(steps):
        optimizer.zero_grad()
        if accumulate:
            with handle.no_sync():
                backward(model, batch(me, 100 + step))
        backward(model, batch(me, step))
        if clip:
            handle.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        assert_same_weights(model)
    assert handle.stats.steps == steps
    handle.remove()


for number, (name, overlap, accumulate, clip) in enumerate(
    itertools.product(OPTIMIZERS, [True, False], [True, False], [True, False])
):
    train(name, SYNCS[number % 3], overlap=overlap, accumulate=accumulate, clip=clip)


def mean_of_all(name, steps=5):
    """What one process does that has every rank's data."""
    model = small_model(dtype=torch.float64).eval()
    optimizer = OPTIMIZERS[name](model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(P):
            backward(model, batch(rank, step, torch.float64))
        for p in model.parameters():
            p.grad /= P
        optimizer.step()
    return weights(model)


for name in OPTIMIZERS:
    reference = mean_of_all(name)
    for sync in (spt.SparDL(density=1.0, teams=2 if P % 2 == 0 else 1), spt.Dense()):  # B-SAG never sends everything
        model = small_model(dtype=torch.float64).eval()
        optimizer = OPTIMIZERS[name](model.parameters())
        handle = spt.distribute(optimizer, model, sync=sync, bucket_mb=0.001)
        for step in range(5):
            optimizer.zero_grad()
            backward(model, batch(me, step, torch.float64))
            optimizer.step()
        # The order of summation differs (tree or ring against rank order), so they agree to rounding only; of two
        # ranks there is one order. Adam divides by tiny numbers.
        tolerance = 0 if P <= 2 and "adam" not in name else 1e-7 if "adam" in name else 1e-12
        torch.testing.assert_close(weights(model), reference, rtol=tolerance, atol=tolerance)
        handle.remove()
