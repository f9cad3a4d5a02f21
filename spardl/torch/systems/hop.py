"""Hop and gossip: training makes its own step, and blends its model with its neighbours' on a graph."""

from abc import abstractmethod
from typing import Any

import numpy as np

from spardl import kernels, timeline
from spardl.agreement import gather_hosts
from spardl.effects import Process
from spardl.graphs import Graph
from spardl.protocols.gossip.program import gossip
from spardl.protocols.gossip.training import Training as GossipTraining
from spardl.protocols.hop.parts import DensePart
from spardl.protocols.hop.program import hop
from spardl.protocols.hop.sparse_part import SparsePart
from spardl.protocols.hop.training import Training as HopTraining
from spardl.protocols.models import Model
from spardl.runtime.process import Program
from spardl.timeline.traced import traced_kernels
from spardl.torch.sync import Gossip, Hop
from spardl.torch.systems.own_models import OwnModelsHandle, OwnModelsSystem
from spardl.torch.systems.system import Setup
from spardl.wire import Codec

_WITH_HOSTS = ("hosts", "double-ring")


class GraphSystem(OwnModelsSystem):
    """What both have in common."""

    _training: HopTraining | GossipTraining

    def __init__(self, setup: Setup, graph: Graph) -> None:
        super().__init__(setup)
        self.graph = graph
        self.distance = 0.0  # of the replicas from their average, as of the last meeting
        self._begun = False
        self._entries = setup.vector.size  # of a model that are sent

    @abstractmethod
    def _program(self, part: Any) -> Program: ...

    def _make_part(self, example: Model) -> Any:
        return DensePart(example)

    def open(self) -> Program:
        self._part = self._make_part(self._travelling.pack())
        self._offset = self.updates
        self._begun = False
        return self._program(self._part)

    def step(self) -> Process[None]:
        if not self._begun:
            self._begun = True
            yield from self._training.begin(_copy(self._travelling.pack()))
        self._vector.require_finite_gradients(self._setup.group.me)
        self._setup.step()
        with timeline.span("wait for neighbours"):
            blended = yield from self._training.blend(_copy(self._travelling.pack()))
        with timeline.span("take the blend", iteration=self._training.iteration):
            self._travelling.unpack(blended)
        self.updates = self._offset + self._training.iteration
        self.totals.applied += 1
        self.totals.entries += self._entries

    def close(self) -> Process[None]:
        model = yield from self._training.close()
        if model is not None:
            self._travelling.unpack(model)

    def meet(self, stays: bool) -> bool:
        own = self._vector.weights()
        super().meet(stays)
        own -= self._vector.weights()
        self.distance = float(np.linalg.norm(own))
        return True

    def moved(self, iteration: int) -> None:
        self.updates = self._offset = iteration


def _copy(model: Model) -> Model:
    """The worker keeps it, and the next one is packed into the same vector."""
    return model._replace(values=model.values.copy())


def _hosts(sync: Hop | Gossip, setup: Setup) -> list[str] | None:
    """By rank, for graphs that look at them."""
    if not isinstance(sync.graph, str) or sync.graph not in _WITH_HOSTS:
        return None
    return gather_hosts(setup.group, setup.timeout)


class HopSystem(GraphSystem):
    """One rank's Hop."""

    name = "Hop"

    def __init__(self, sync: Hop, setup: Setup) -> None:
        super().__init__(setup, sync.graph_for(setup.group.size, _hosts(sync, setup)))
        self._sync = sync
        if sync.density is not None:
            self._entries = max(1, round(sync.density * self._vector.size))

    def _make_part(self, example: Model) -> Any:
        if self._sync.density is None:
            return DensePart(example)
        chosen = traced_kernels(timeline.current(), kernels.load_for_host("auto"))
        weights, gamma = self._vector.weights(), self._sync.gamma_on(self.graph)  # all ranks have the same weights now
        neighbours = self.graph.inward[self._setup.group.me]
        return SparsePart(weights, example, self._entries, gamma, neighbours, chosen, Codec(chosen))

    def _program(self, part: Any) -> Program:
        me = self._setup.group.me
        self._training = HopTraining(me, **self._waiting())
        return hop(me, self.graph, part, self._sync.settings())


class GossipSystem(GraphSystem):
    """One rank's gossip."""

    name = "Gossip"

    def __init__(self, sync: Gossip, setup: Setup) -> None:
        super().__init__(setup, sync.graph_for(setup.group.size, _hosts(sync, setup)))
        self._sync = sync

    def _program(self, part: Any) -> Program:
        me = self._setup.group.me
        self._training = GossipTraining(me, **self._waiting())
        return gossip(me, self.graph, part, seed=self._sync.seed)


class GraphHandle(OwnModelsHandle):
    """What ``distribute`` returns for Hop and gossip."""

    _system: GraphSystem

    @property
    def graph(self) -> Graph:
        """Who sends to whom."""
        return self._system.graph

    @property
    def distance(self) -> float:
        """How far this rank's weights were from the average of all (as a norm) when ranks last met."""
        return self._system.distance
