"""A training from its first step to its last, which can be saved in between and gone on with, bit for bit."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt
from spardl.delays import parse_delay

Sync: TypeAlias = spt.SparDL | spt.Dense | spt.RNA | spt.PartialReduce | spt.Hop | spt.Gossip


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for every way of synchronising that is compared."""

    epochs: int
    batch: int  # over all ranks
    lr: float
    seed: int
    delay: str = "none"  # stragglers on purpose, see spardl.delays
    seconds: float | None = None  # instead of epochs: each rank then does as much as it can


class Epoch(NamedTuple):
    iterations: int
    seconds: float  # since training began
    loss: float  # mean, of this rank


@dataclass(frozen=True, slots=True)
class Spent:
    """What a training has taken so far, on this rank."""

    seconds: float = 0.0
    steps: int = 0
    bytes_sent: int = 0
    dense_bytes: int = 0
    waited: float = 0.0
    density: float = 0.0  # the mean over steps

    def plus(self, seconds: float, stats: spt.Stats) -> "Spent":
        """With what a process has taken for ``stats.steps`` more."""
        steps = self.steps + stats.steps
        return Spent(
            seconds=self.seconds + seconds,
            steps=steps,
            bytes_sent=self.bytes_sent + stats.bytes_sent,
            dense_bytes=self.dense_bytes + stats.dense_bytes,
            waited=self.waited + stats.wait_seconds,
            density=(self.density * self.steps + stats.density * stats.steps) / max(steps, 1),
        )


class Course:
    """One training: ``go`` through its epochs, or until somebody wants it to stop."""

    def __init__(
        self, comm: MPI.Intracomm, model: nn.Module, sync: Sync, job: Job, inputs: torch.Tensor, targets: torch.Tensor
    ) -> None:
        self.model, self.epochs = model, list[Epoch]()
        self.iteration = 0
        self._comm, self._job, self._inputs, self._targets = comm, job, inputs, targets
        self._steps = len(inputs) // job.batch  # of an epoch
        self._losses: list[float] = []  # of this epoch so far, on this rank
        self._delay = parse_delay(job.delay, job.seed)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=job.lr, momentum=0.9, weight_decay=1e-4)
        self.handle: spt.Handle | spt.SystemHandle = spt.distribute(self._optimizer, model, sync=sync, comm=comm)
        self._shuffle = torch.Generator().manual_seed(job.seed)  # the same on all ranks; each takes its part
        self._order_from = self._shuffle.get_state()  # what this epoch's order is drawn from
        self._before = Spent()  # by processes before this one
        self._started = time.perf_counter()
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda _: (1 + math.cos(math.pi * self.done)) / 2
        )

    @property
    def done(self) -> float:
        """From 0 to 1; there is always one iteration."""
        if self.iteration == 0:
            return 0.0
        if self._job.seconds is not None:
            return min(1.0, (time.perf_counter() - self._started) / self._job.seconds)
        return self.iteration / (self._steps * self._job.epochs)

    @property
    def seconds(self) -> float:
        return self._before.seconds + time.perf_counter() - self._started

    @property
    def spent(self) -> Spent:
        return self._before.plus(self.seconds - self._before.seconds, self.handle.stats)

    def go(self, after_epoch: Callable[[], Any], should_stop: Callable[[], bool]) -> bool:
        """Trains until there were enough epochs, or the time is over: True. False if it had to stop before."""
        self._started = time.perf_counter()
        while self.done < 1:
            order = torch.randperm(len(self._inputs), generator=self._shuffle)
            while len(self._losses) < self._steps and self.done < 1:
                self._step(order)
                if should_stop() and self.done < 1:
                    return False
            if not self._losses:  # the time was over between two looks at the clock
                break
            self.epochs.append(Epoch(len(self._losses), self.seconds, float(np.mean(self._losses))))
            self._losses = []
            self._order_from = self._shuffle.get_state()
            after_epoch()
        return True

    def _step(self, order: torch.Tensor) -> None:
        began = time.perf_counter()
        first = len(self._losses) * self._job.batch
        mine = order[first : first + self._job.batch][self._comm.rank :: self._comm.size]
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self._inputs[mine]), self._targets[mine])
        loss.backward()  # type: ignore[no-untyped-call]
        computed = time.perf_counter() - began
        time.sleep(self._delay.seconds(self._comm.rank, self._comm.size, self.iteration, computed))
        self._optimizer.step()
        self.iteration += 1
        self._scheduler.step()
        self._losses.append(loss.item())

    # -- saving --------------------------------------------------------------------------------------------------------

    def shared_state(self) -> dict[str, Any]:
        """What is the same on all ranks."""
        return {
            "iteration": self.iteration,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict(),
            "order_from": self._order_from,
        }

    def own_state(self) -> dict[str, Any]:
        """What only this rank knows, but for the handle's state. JSON can tell it."""
        return {"losses": self._losses, "epochs": self.epochs, "spent": asdict(self.spent)}

    def load(self, shared: Mapping[str, Any], own: Mapping[str, Any], handle: Mapping[str, Any]) -> None:
        """Goes on from such states, and one of a handle."""
        assert isinstance(self.handle, spt.Handle)
        self.iteration = shared["iteration"]
        self.model.load_state_dict(shared["model"])
        self._optimizer.load_state_dict(shared["optimizer"])
        self._scheduler.load_state_dict(shared["scheduler"])
        self._order_from = shared["order_from"]
        self._shuffle.set_state(self._order_from)
        self.handle.load_state_dict(handle)
        self._losses = list(own["losses"])
        self.epochs = [Epoch(*told) for told in own["epochs"]]
        self._before = Spent(**own["spent"])
