"""What a system that does not wait for everyone makes of training; ``SystemHandle`` does what all have in common."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy.typing as npt
import torch

from spardl.effects import Collective, Process
from spardl.protocols.metrics import Metrics
from spardl.runtime import farewell
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task, shared_channel
from spardl.runtime.neighbour import State
from spardl.runtime.process import Program
from spardl.runtime.stall import answering_grace, blamed, longer_limit
from spardl.runtime.traffic import Traffic
from spardl.torch.vector import ModelVector

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a system works with. ``step`` is the optimizer's own."""

    optimizer: torch.optim.Optimizer
    model: torch.nn.Module
    step: Callable[[], Any]
    parameters: Mapping[str, torch.nn.Parameter]
    vector: ModelVector
    group: Group
    timeout: float


@dataclass(slots=True)
class Totals:
    """Since ``distribute``."""

    applied: int = 0  # updates that moved the weights
    skipped: int = 0  # updates that nobody contributed to
    entries: int = 0  # of all updates
    communicated: float = 0.0  # seconds, when all ranks met


class System(ABC):
    """One rank's. From ``open`` to ``close`` processes of all ranks are at work, and training takes steps."""

    name: str
    updates = 0  # of the whole training, checkpoints included

    def __init__(self, setup: Setup) -> None:
        self._setup, self._vector = setup, setup.vector
        self.metrics, self.totals, self.traffic = Metrics(), Totals(), Traffic()

    @abstractmethod
    def open(self) -> Program:
        """What this rank's processes are from now on. All ranks call it together."""

    @abstractmethod
    def step(self) -> Process[None]:
        """One iteration: offers what this rank has computed, and applies what has come meanwhile."""

    @abstractmethod
    def close(self) -> Process[None]:
        """No more iterations: until all ranks are through, and all that came is applied."""

    @property
    def communicated(self) -> float:
        """Seconds since ``distribute``."""
        return self.totals.communicated + self.metrics.communicated_seconds

    @property
    def wants_meeting(self) -> bool:
        """Whether all ranks shall close and open again."""
        return False

    def meet(self, stays: bool) -> bool:
        """After ``close``, on all ranks: makes them the same. True if all ranks ``stays``."""
        return True

    def _waiting(self) -> dict[str, Any]:
        """How training waits for others: arguments of ``protocols.face.Face``."""
        timeout = self._setup.timeout
        return {
            "limit": timeout,
            "grace": answering_grace(timeout),
            "metrics": self.metrics,
            "blame": self._blame,
            "advice": longer_limit(),
        }

    def _blame(self, silent: frozenset[int]) -> tuple[int, ...]:
        """Ranks that the error names: who is seen stopped or dead, if anybody is."""
        group = self._setup.group
        states = group.neighbours()
        gone, runs = ({at for at, state in states.items() if state is kind} for kind in (State.GONE, State.RUNS))
        ranks = tuple(group.ranks[at] for at in blamed(set(silent), gone, runs))
        farewell.lose(group.line, ranks)
        return ranks

    def _together(self, collective: Collective[Result], what: str) -> Result:
        """Runs a collective with all ranks, in training's own thread, after ``close``."""
        task = Task(shared_channel(self._setup.group), collective, self._setup.timeout, what)
        began = time.perf_counter()
        result = task.wait()
        self.totals.communicated += time.perf_counter() - began
        self.traffic.add(task.traffic)
        return result

    @property
    @abstractmethod
    def residual(self) -> npt.NDArray[Any] | None:
        """What this rank still owes; None where everything is sent."""

    @abstractmethod
    def owe(self, residual: npt.NDArray[Any]) -> None:
        """Goes on with this one."""
