"""A training job that needs no download: scikit-learn's handwritten digits and a small network."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt
from spardl.agreement import gather_json
from spardl.cli.checkpoint import Checkpoint
from spardl.cli.course import Course, Job, Spent, Sync
from spardl.runtime.group import resolve
from spardl.runtime.mpi import default_timeout


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
    weights: str  # a digest of the bits
    iterations_per_second: float  # of a rank, the mean over ranks
    rounds_per_second: float  # of rank 0's group, if there are several; of Partial Reduce, all groups
    contributors: float  # per round, on average
    dropped: int  # gradients that were too old, of all ranks
    waited_seconds: float  # the mean over ranks of how long training waited for others
    waited_by_rank: list[float]
    groups: str  # of ranks, in the end
    staleness: dict[int, int]  # rounds that a gradient was behind → how many, of all ranks
    rho: float | None  # of Partial Reduce's groups: how slowly models spread, from 0 to 1
    largest_gap: int | None  # iterations that a rank was ahead of a neighbour, where there is a graph
    late: int | None  # updates of neighbours that came too late, of all ranks
    skipped: int | None  # iterations that were jumped over, of all ranks
    busy: int | None  # times that a neighbour had no time, of all ranks
    distance: float | None  # of the replicas from their average in the end, the largest
    history: list[tuple[float, float]]  # seconds, and the mean loss of an epoch, of rank 0


def load_digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images and labels, test images and labels; the split is the same everywhere."""
    images, labels = _read_digits()
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = torch.from_numpy((images[order] / 16).astype(np.float32))
    targets = torch.from_numpy(labels[order].astype(np.int64))
    test = len(labels) // 5
    return inputs[test:], targets[test:], inputs[:test], targets[:test]


def _read_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What scikit-learn's ``load_digits`` returns; importing that would cost every rank a second for this one file."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ImportError("the digits come with scikit-learn: pip install 'spardl[train]'")
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return table[:, :-1], table[:, -1]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Stopped(Exception):
    """A signal came, and the training was saved before its end."""


def run(
    comm: MPI.Intracomm,
    sync: Sync,
    job: Job,
    progress: Callable[[int, float], Any],
    checkpoint: Checkpoint | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Trains and evaluates. ``progress`` is told of every epoch, with its mean loss on this rank.

    With a ``checkpoint`` it goes on from there, and saves after every epoch and when it stops before the end.
    """
    inputs, targets, test_inputs, test_targets = load_digits()
    torch.manual_seed(job.seed)
    course = Course(comm, network(), sync, job, inputs, targets)
    if checkpoint is not None and checkpoint.load_into(course) and comm.rank == 0:
        click.echo(f"goes on after step {course.iteration}, {course.done:.0%} of the training", err=True)

    def after_epoch() -> None:
        progress(len(course.epochs), course.epochs[-1].loss)
        if checkpoint is not None:
            checkpoint.save(course)

    comm.Barrier()
    finished = course.go(after_epoch, should_stop)
    if checkpoint is not None and not finished:
        checkpoint.save(course)
    course.handle.remove()
    if not finished:
        raise Stopped(f"stopped after step {course.iteration}, {course.done:.0%} of the training")
    spent = course.spent
    with torch.no_grad():
        accuracy = float((course.model(test_inputs).argmax(1) == test_targets).float().mean())
    return _sum_up(comm, course, spent, accuracy)


def _sum_up(comm: MPI.Intracomm, course: Course, spent: Spent, accuracy: float) -> Outcome:
    """What all ranks have to say, in one."""
    handle, epochs = course.handle, course.epochs
    metrics = handle.metrics
    weights = torch.cat([p.detach().reshape(-1) for p in course.model.parameters()]).numpy()
    mine: dict[str, Any] = {
        "loss": epochs[-1].loss,
        "seconds": spent.seconds,
        "iterations": sum(epoch.iterations for epoch in epochs),
        "bytes": spent.bytes_sent,
        "waited": spent.waited,
        "dropped": metrics.dropped,
        "graph": _on_graph(handle),
        "staleness": list(metrics.staleness.items()),
        "weights": hashlib.blake2b(weights.tobytes()).hexdigest(),
    }
    timeout = default_timeout()
    everyone = gather_json(resolve(comm, timeout), mine, timeout, "comparing results")
    longest = max(told["seconds"] for told in everyone)
    graph = handle.sync_graph if isinstance(handle, spt.PartialReduceHandle) else None
    return Outcome(
        accuracy=accuracy,
        loss=float(np.mean([told["loss"] for told in everyone])),
        seconds=longest,
        steps=spent.steps,
        bytes_sent=max(told["bytes"] for told in everyone),
        dense_bytes=spent.dense_bytes,
        density=spent.density,
        same_bits=len({told["weights"] for told in everyone}) == 1,
        weights=mine["weights"],
        iterations_per_second=sum(told["iterations"] for told in everyone) / comm.size / longest,
        rounds_per_second=(spent.steps if graph is None else graph["groups"]) / longest,
        contributors=float(np.mean(metrics.contributors)) if metrics.contributors else float(comm.size),
        dropped=sum(told["dropped"] for told in everyone),
        waited_seconds=float(np.mean([told["waited"] for told in everyone])),
        waited_by_rank=[told["waited"] for told in everyone],
        groups=_groups(handle),
        staleness=dict(sum((Counter(dict(told["staleness"])) for told in everyone), Counter())),
        **_over_ranks([told["graph"] for told in everyone]),
        rho=None if graph is None else graph["rho"],
        history=[(epoch.seconds, epoch.loss) for epoch in epochs],
    )


def _groups(handle: spt.Handle | spt.SystemHandle) -> str:
    """E.g. ``0 1 2 | 3 4 5``."""
    groups = handle.groups if isinstance(handle, spt.RnaHandle) else []
    return " | ".join(" ".join(map(str, group)) for group in groups)


def _on_graph(handle: spt.Handle | spt.SystemHandle) -> dict[str, Any] | None:
    """What only matters where there is a graph."""
    if not isinstance(handle, spt.GraphHandle):
        return None
    metrics = handle.metrics
    counted = {"late": metrics.late, "skipped": metrics.skipped, "busy": metrics.busy}
    return {"largest_gap": metrics.largest_gap, "distance": handle.distance, **counted}


def _over_ranks(told: list[dict[str, Any] | None]) -> dict[str, Any]:
    combine: dict[str, Callable[[Any], Any]] = {
        "largest_gap": max,
        "distance": max,
        "late": sum,
        "skipped": sum,
        "busy": sum,
    }
    return {
        name: None if told[0] is None else together([one[name] for one in told if one is not None])
        for name, together in combine.items()
    }
