"""Partial Reduce: training makes its own step, and averages its model with a group of ranks that are ready."""

from typing import Any

from spardl import kernels, timeline
from spardl.effects import Process
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.parts import DensePart, SparsePart
from spardl.protocols.preduce.program import preduce
from spardl.protocols.preduce.training import Training
from spardl.runtime.process import Program
from spardl.timeline.traced import traced_kernels
from spardl.torch.sync import PartialReduce, SparDL
from spardl.torch.systems.own_models import OwnModelsHandle, OwnModelsSystem
from spardl.torch.systems.system import Setup
from spardl.wire import Codec

_STALE = -1  # the anchor of a rank whose weights come from elsewhere than the last average of all


class PartialReduceSystem(OwnModelsSystem):
    """One rank's Partial Reduce."""

    name = "Partial Reduce"

    def __init__(self, sync: PartialReduce, setup: Setup) -> None:
        super().__init__(setup, sync.optimizer_state)
        self._sync = sync
        self._history: GroupHistory | None = None  # on the controller's rank
        self._graph: dict[str, Any] = {"groups": 0, "rho": None, "rho_bar": None}  # as of the last meeting

    # -- from one meeting to the next ----------------------------------------------------------------------------------

    def open(self) -> Program:
        group = self._setup.group
        self._part = self._make_part()
        self._training = Training(group.me, **self._waiting())
        self._training.iteration = self.updates
        if self._history is None and group.me == 0:
            self._history = GroupHistory(group.size)
        return preduce(group.me, group.size, self._part, self._sync.settings(), history=self._history)

    def _make_part(self) -> DensePart | SparsePart:
        reduce = self._sync.reduce
        if not isinstance(reduce, SparDL):
            return DensePart(self._adopts)
        chosen = traced_kernels(timeline.current(), kernels.load_for_host(reduce.backend))
        k = max(1, round(reduce.density_at(0) * self._vector.size))
        # All ranks have the same weights now.
        return SparsePart(k, self._vector.weights(), chosen, Codec(chosen, reduce.wire, reduce.wire_dtype))

    def step(self) -> Process[None]:
        self._vector.require_finite_gradients(self._setup.group.me)
        self._setup.step()
        offered = self._training.iteration + 1
        with timeline.span("pack"):
            model = self._travelling.pack()
        with timeline.span("wait for the group's average"):
            mean = yield from self._training.average(model, self._travelling.layout)
        with timeline.span("take the average", group=mean.group.number):
            # The freshest members keep their optimizer's state where the others adopt it.
            state = not self._adopts or offered < mean.group.iteration
            self._travelling.unpack(mean.result, state=state)
        self.updates = self._training.iteration
        self.totals.applied += 1
        self.totals.entries += min(self._part.entries, self._vector.size)

    def close(self) -> Process[None]:
        yield from self._training.close()

    def told_at_meeting(self) -> Any:
        return self.graph()

    def hear_at_meeting(self, told: list[Any]) -> None:
        self._graph = told[0]

    def graph(self) -> dict[str, Any]:
        """Of all groups so far on the controller's rank, else as of the last meeting."""
        return self._graph if self._history is None else self._history.graph.told()

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def moved(self, iteration: int) -> None:
        self.updates = self._training.iteration = iteration
        self._training.anchor = _STALE

    def own_state(self) -> dict[str, Any]:
        return {} if self._history is None else self._history.state()

    def check_own_state(self, state: Any, same_ranks: bool) -> Any:
        if self._history is None or not same_ranks:
            return None
        return GroupHistory.from_state(state, self._setup.group.size)

    def load_own_state(self, checked: Any) -> None:
        if self._history is not None and checked is not None:
            self._history.become(checked)


class PartialReduceHandle(OwnModelsHandle):
    """What ``distribute`` returns for Partial Reduce."""

    _system: PartialReduceSystem

    @property
    def sync_graph(self) -> dict[str, Any]:
        """How fast models have spread: the number of ``groups``, ``rho`` and ``rho_bar`` of those who were together.

        ρ is between 0 (every group has everyone) and 1 (some ranks never meet, and ρ̄ is None). Rank 0 knows at any
        time, the others after ``settle()`` or ``finish()``.
        """
        return self._thread.door.look(self._system.graph)
