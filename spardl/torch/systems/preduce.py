"""Partial Reduce: training makes its own step, and averages its model with a group of ranks that are ready."""

from typing import Any

from spardl import kernels, timeline
from spardl.agreement import gather_json
from spardl.effects import Process
from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.model import Model
from spardl.protocols.preduce.notes import Assemble
from spardl.protocols.preduce.parts import DensePart, SparsePart
from spardl.protocols.preduce.program import preduce
from spardl.protocols.preduce.training import Training
from spardl.runtime.process import Program
from spardl.timeline.traced import traced_kernels
from spardl.torch.sync import PartialReduce, SparDL
from spardl.torch.systems.own_models import OwnModelsHandle, OwnModelsSystem
from spardl.torch.systems.system import Setup
from spardl.torch.travelling import Travelling, union_of
from spardl.wire import Codec

_STALE = -1  # the anchor of a rank whose weights come from elsewhere than the last average of all


class PartialReduceSystem(OwnModelsSystem):
    """One rank's Partial Reduce."""

    name = "Partial Reduce"

    def __init__(self, sync: PartialReduce, setup: Setup) -> None:
        super().__init__(setup)
        self._sync = sync
        self._adopts = sync.optimizer_state == "adopt"
        with_state = sync.optimizer_state != "local"
        self._travelling = Travelling(setup.model, setup.vector, setup.optimizer, with_state)
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
        self.totals.communicated += self._training.communicated
        self._training.communicated = 0.0

    @property
    def communicated(self) -> float:
        return self.totals.communicated + self._training.communicated

    def meet(self, stays: bool) -> bool:
        """All get the average of all, exactly, and the iterations of whoever has seen the most."""
        group = self._setup.group
        mine = {"iteration": self.updates, "layout": self._travelling.layout, "graph": self.graph()}
        everyone = gather_json(group, mine, self._setup.timeout, f"{self.name}'s meeting")
        iterations = [told["iteration"] for told in everyone]
        layout = union_of([told["layout"] for told in everyone])
        self._graph = everyone[0]["graph"]
        latest = max(iterations)
        freshest = iterations.index(latest)
        all_of_them = Assemble(0, tuple(range(group.size)), 1 / group.size, latest, freshest, group.me, True)
        offer = self._travelling.pack(layout)
        average = DensePart(self._adopts).average(all_of_them, group.me, offer)
        mean: Model = self._together(average, f"{self.name}'s average of all")
        self._travelling.unpack(mean, layout, state=not self._adopts or self.updates < latest)
        self.updates = latest
        return True

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
