"""Training of a small network, bulk-synchronous or with a system that does not wait for everyone."""

import hashlib
from contextlib import nullcontext

import torch
from rank import options, reporting, steps, tell, world

import spardl.torch as spt

SYNCS = {
    "SparDL": spt.SparDL(density=0.05),
    "RNA, dense": spt.RNA(patience=0.5),
    "RNA, sparse": spt.RNA(reduce=spt.SparDL(density=0.05), patience=0.5),
    "Partial Reduce": spt.PartialReduce(2, patience=0.5),
    "Hop": spt.Hop("ring"),
    "gossip": spt.Gossip(),
}

torch.set_num_threads(1)
torch.manual_seed(world.rank)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
name = options.get("sync", "SparDL")
with reporting():
    handle = spt.distribute(optimizer, model, sync=SYNCS[name])
    with nullcontext() if name == "SparDL" else handle:  # leaving the block waits for the others
        for _ in steps():
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    tell("done", digest=hashlib.blake2b(weights.numpy().tobytes(), digest_size=8).hexdigest())
