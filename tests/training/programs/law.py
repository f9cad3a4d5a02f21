"""Over a whole training: the sum of all gradients = P × what was applied + what all ranks still owe. Exactly.

Gradients are integers that stay integers through every share, so nothing rounds and equality is demanded.
"""

import numpy as np
import torch
from mpi.programs.checks import world
from setting import TEAMS, P, me
from torch import nn

import spardl.torch as spt

UNIT = 2.0**12 * 3**2 * P  # divides by P and by every share of the teams


class Linears(nn.Module):
    """Outputs are linear in the parameters, so gradients are the inputs; one parameter is used every other step."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (301, 50, 7))

    def forward(self, a, b, c):
        return (self.a * a).sum() + (self.b * b).sum() + (0 if c is None else (self.c * c).sum())


def inputs(step, part=0):
    rng = np.random.default_rng([me, step, part])
    a, b, c = (torch.from_numpy(UNIT * rng.integers(-9, 10, n)) for n in (301, 50, 7))
    return a, b, c if (step + me) % 2 else None


def check(sync, *, overlap, exclude, accumulate):
    model = Linears()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = spt.distribute(optimizer, model, sync=sync, overlap=overlap, exclude=exclude, bucket_mb=0.001)
    handed_in = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(8):
        optimizer.zero_grad()
        for part in range(3 if accumulate else 1):
            given = inputs(step, part)
            for name, value in zip("abc", given, strict=True):
                handed_in[name] += 0 if value is None else value
            if accumulate and part < 2:
                with handle.no_sync():
                    model(*given).backward()
            else:
                model(*given).backward()
        optimizer.step()
        owed = handle.residuals
        for name, p in model.named_parameters():  # they started from 0 with learning rate 1: what was applied is -p
            mine = (handed_in[name] - owed.get(name, 0)).numpy()
            total = np.empty_like(mine)
            world.Allreduce(mine, total)
            np.testing.assert_array_equal(-P * p.detach().numpy(), total)
    handle.remove()


for overlap, exclude, accumulate in ((True, (), False), (True, ["b"], True), (False, ["a"], False)):
    for sync in (
        spt.SparDL(density=0.1, teams=TEAMS),
        spt.SparDL(density=0.02, sag="b", teams=TEAMS),
        spt.SparDL(density=spt.Warmup(0.02, steps=5)),
        spt.Dense(),
    ):
        check(sync, overlap=overlap, exclude=exclude, accumulate=accumulate)
