"""A training job that needs no download: scikit-learn's handwritten digits and a small network."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt
from spardl.agreement import gather_json
from spardl.runtime.group import resolve
from spardl.runtime.mpi import default_timeout
from spardl.sync.box import Metrics
from spardl.sync.delays import parse_delay


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for every way of synchronising that is compared."""

    epochs: int
    batch: int  # over all ranks
    lr: float
    seed: int
    delay: str = "none"  # stragglers on purpose, see spardl.sync.delays
    seconds: float | None = None  # instead of epochs: each rank then does as much as it can


class Epoch(NamedTuple):
    iterations: int
    seconds: float  # since training began
    loss: float  # mean, of this rank


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, the same on all ranks: times are the slowest rank's, bytes the busiest one's."""

    accuracy: float
    loss: float
    seconds: float
    steps: int
    bytes_sent: int
    dense_bytes: int
    density: float
    same_bits: bool
    iterations_per_second: float  # of a rank, the mean over ranks
    contributors: float  # per round, on average
    dropped: int  # gradients that were too old, of all ranks
    waited_seconds: float  # the mean over ranks of how long training waited for others
    waited_by_rank: list[float]
    groups: str  # of ranks, in the end
    staleness: dict[int, int]  # rounds that a gradient was behind → how many, of all ranks
    history: list[tuple[float, float]]  # seconds, and the mean loss of an epoch, of rank 0


def load_digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images and labels, test images and labels; the split is the same everywhere."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'spardl[train]'") from error
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = torch.from_numpy((images[order] / 16).astype(np.float32))
    targets = torch.from_numpy(labels[order].astype(np.int64))
    test = len(labels) // 5
    return inputs[test:], targets[test:], inputs[:test], targets[:test]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


Sync: TypeAlias = spt.SparDL | spt.Dense | spt.RNA


def run(comm: MPI.Intracomm, sync: Sync, job: Job, progress: Callable[[int, float], Any]) -> Outcome:
    """Trains and evaluates. ``progress`` is told of every epoch, with its mean loss on this rank."""
    inputs, targets, test_inputs, test_targets = load_digits()
    torch.manual_seed(job.seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr, momentum=0.9, weight_decay=1e-4)
    handle: spt.Handle | spt.RnaHandle = spt.distribute(optimizer, model, sync=sync, comm=comm)
    comm.Barrier()
    started = time.perf_counter()
    epochs = list(_train(comm, model, optimizer, inputs, targets, job, progress))
    handle.remove()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        accuracy = float((model(test_inputs).argmax(1) == test_targets).float().mean())
    return _sum_up(comm, model, handle, epochs, seconds, accuracy)


def _train(
    comm: MPI.Intracomm,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    job: Job,
    progress: Callable[[int, float], Any],
) -> Iterator[Epoch]:
    """Epoch after epoch, until there were enough or the time is over."""
    started = time.perf_counter()
    delay = parse_delay(job.delay, job.seed)
    steps = len(inputs) // job.batch
    iteration = 0

    def done() -> float:
        """From 0 to 1."""
        if job.seconds is not None:
            return min(1.0, (time.perf_counter() - started) / job.seconds)
        return iteration / (steps * job.epochs)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: (1 + math.cos(math.pi * done())) / 2)
    criterion = nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(job.seed)
    number = 0
    while done() < 1:
        number += 1
        order = torch.randperm(len(inputs), generator=shuffle)  # the same on all ranks; each takes its part
        losses: list[float] = []
        while len(losses) < steps and done() < 1:
            began = time.perf_counter()
            batch = order[len(losses) * job.batch : (len(losses) + 1) * job.batch]
            mine = batch[comm.rank :: comm.size]
            optimizer.zero_grad()
            loss = criterion(model(inputs[mine]), targets[mine])
            loss.backward()
            time.sleep(delay.seconds(comm.rank, comm.size, iteration, time.perf_counter() - began))
            optimizer.step()
            iteration += 1
            scheduler.step()
            losses.append(loss.item())
        mean = float(np.mean(losses))
        progress(number, mean)
        yield Epoch(len(losses), time.perf_counter() - started, mean)


def _sum_up(
    comm: MPI.Intracomm,
    model: nn.Module,
    handle: spt.Handle | spt.RnaHandle,
    epochs: list[Epoch],
    seconds: float,
    accuracy: float,
) -> Outcome:
    """What all ranks have to say, in one."""
    stats = handle.stats
    metrics = handle.metrics if isinstance(handle, spt.RnaHandle) else Metrics()
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    mine = {
        "loss": epochs[-1].loss,
        "seconds": seconds,
        "iterations": sum(epoch.iterations for epoch in epochs),
        "bytes": stats.bytes_sent,
        "waited": stats.wait_seconds,
        "dropped": metrics.dropped,
        "staleness": list(metrics.staleness.items()),
        "weights": hashlib.blake2b(weights.tobytes()).hexdigest(),
    }
    timeout = default_timeout()
    everyone = gather_json(resolve(comm, timeout), mine, timeout, "comparing results")
    longest = max(told["seconds"] for told in everyone)
    return Outcome(
        accuracy=accuracy,
        loss=float(np.mean([told["loss"] for told in everyone])),
        seconds=longest,
        steps=stats.steps,
        bytes_sent=max(told["bytes"] for told in everyone),
        dense_bytes=stats.dense_bytes,
        density=stats.density,
        same_bits=len({told["weights"] for told in everyone}) == 1,
        iterations_per_second=sum(told["iterations"] for told in everyone) / comm.size / longest,
        contributors=float(np.mean(metrics.contributors)) if metrics.contributors else float(comm.size),
        dropped=sum(told["dropped"] for told in everyone),
        waited_seconds=float(np.mean([told["waited"] for told in everyone])),
        waited_by_rank=[told["waited"] for told in everyone],
        groups=_groups(handle),
        staleness=dict(sum((Counter(dict(told["staleness"])) for told in everyone), Counter())),
        history=[(epoch.seconds, epoch.loss) for epoch in epochs],
    )


def _groups(handle: spt.Handle | spt.RnaHandle) -> str:
    """E.g. ``0 1 2 | 3 4 5``."""
    groups = handle.groups if isinstance(handle, spt.RnaHandle) else []
    return " | ".join(" ".join(map(str, group)) for group in groups)
