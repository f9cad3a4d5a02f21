"""A training script with three lines for spardl, marked; the rest is plain PyTorch.

mpirun -n 4 python examples/digits.py
"""

import torch
from mpi4py import MPI
from sklearn.datasets import load_digits
from torch import nn

import spardl.torch as spt  # (1)

rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
torch.set_num_threads(1)  # several ranks share this machine

# 1,797 handwritten digits that come with scikit-learn. The last fifth is for testing.
images, labels = load_digits(return_X_y=True)
inputs = torch.tensor(images, dtype=torch.float32) / 16
targets = torch.tensor(labels)
cut = len(inputs) * 4 // 5

# No seed is needed: distribute() gives all ranks the weights of rank 0.
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
handle = spt.distribute(optimizer, model, sync=spt.SparDL(density=0.01))  # (2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

shuffle = torch.Generator().manual_seed(0)  # the same permutation on all ranks, of which each takes its share
for epoch in range(20):
    for batch in torch.randperm(cut, generator=shuffle).split(64):
        mine = batch[rank::ranks]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[mine]), targets[mine])
        loss.backward()  # buckets of gradients are sent as they become ready
        optimizer.step()  # waits for them, and applies the mean over all ranks
    scheduler.step()
    if rank == 0 and epoch % 5 == 4:
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

with torch.no_grad():
    accuracy = (model(inputs[cut:]).argmax(1) == targets[cut:]).float().mean().item()
stats = handle.stats  # (3) what it cost
if rank == 0:
    print(f"test accuracy {accuracy:.1%}; {stats.bytes_sent:,} bytes sent, {stats.compression:.0f} × fewer than dense")
