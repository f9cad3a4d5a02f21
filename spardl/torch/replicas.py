"""The watch over replicas: now and then ranks compare digests of their weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from spardl import timeline
from spardl.agreement import open_channel
from spardl.errors import ReplicasDiffer
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task
from spardl.torch.digest import Difference, compare, digests

_WHAT_TO_DO = (
    "Load a checkpoint on all ranks, or go on from rank 0's weights: handle.remove(), then distribute() again. Usual "
    "causes: one rank loaded, clipped or re-initialised weights alone, or left out a step(); learning rates differ; "
    "other processors, numbers of threads or versions of torch round differently; faulty memory. "
    "distribute(..., verify_every=0) never compares."
)


class ReplicaWatch:
    """Compares every so many steps, ``every``; 0 for never."""

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        group: Group,
        every: int,
        settings: dict[str, Any],
        timeout: float,
        warn_after: float | None = None,
    ) -> None:
        """``settings``: what else all ranks must have alike."""
        self._weights, self._group, self.every, self._timeout = weights, group, every, timeout
        agreed = {"verify_every": every} | settings
        self._channel = open_channel(group, lambda: agreed, timeout, "distribute", warn_after)
        self._steps = 0  # since ranks were found equal

    def before_step(self) -> None:
        """Compares if it is time: weights that a step starts from are the same on all ranks."""
        self._steps += 1
        if 0 < self.every <= self._steps:
            self.compare(self._weights)
            self._steps = 0

    def compare(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Raises ``ReplicasDiffer`` on all ranks if these differ. All ranks call it, and no step is under way."""
        with timeline.span("compare weights"):
            mine = digests(weights.values())
            collective = compare(self._group.size, self._group.me, mine)
            found = Task(self._channel, collective, self._timeout, "comparing weights").wait()
        if found is not None:
            raise _error(found, list(weights)[found.first], self._group.ranks)


def _error(found: Difference, parameter: str, ranks: Sequence[int]) -> ReplicasDiffer:
    most, *others = (sorted(ranks[position] for position in positions) for positions in found.alike)
    differ = _listed(sorted(rank for alike in others for rank in alike))
    return ReplicasDiffer(
        f"the ranks have different weights, first in parameter {parameter!r}: {differ} from {_listed(most)}. "
        f"{_WHAT_TO_DO}",
        ranks=tuple(ranks[position] for position in found.odd),
        parameter=parameter,
    )


def _listed(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
