"""Partial Reduce on ranks in one process: models and optimizers, all of its processes, and training."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from training.one_rank import backward

from spardl.protocols.preduce.notes import Assemble
from spardl.protocols.preduce.parts import DensePart
from spardl.runtime.loopback import Loopback, loopback
from spardl.torch.systems import own_models, preduce
from spardl.torch.systems.system import Setup
from spardl.torch.travelling import Travelling
from spardl.torch.vector import ModelVector


class Table:
    """Ranks that have a thread each hand something in, and get what is made of all of it."""

    def __init__(self, ranks):
        self._handed_in, self._made = [None] * ranks, None
        self._make = None
        self._all_there = threading.Barrier(ranks, self._serve)

    def _serve(self):
        self._made = self._make(self._handed_in)

    def hand_in(self, me, mine, make):
        """``make`` is called once, with what everyone has handed in; returns this rank's part of what it returns."""
        self._handed_in[me], self._make = mine, make
        self._all_there.wait(timeout=10)
        return self._made[me]


@dataclass
class LocalGroup:
    """In place of a group of MPI's ranks."""

    me: int
    size: int
    table: Table
    line: Any = None

    @property
    def ranks(self):
        return tuple(range(self.size))

    def neighbours(self):
        return {}


class LocalSystem(preduce.PartialReduceSystem):
    def _together(self, collective, what):
        group = self._setup.group
        return group.table.hand_in(group.me, collective, loopback)


def gather_json(group, mine, *_):
    """In place of ``spardl.agreement.gather_json``."""
    return group.table.hand_in(group.me, json.dumps(mine), lambda texts: [[*map(json.loads, texts)] for _ in texts])


@dataclass
class Replica:
    """One rank's."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    system: LocalSystem

    def train(self, batches):
        for inputs in batches:
            self.optimizer.zero_grad()
            backward(self.model, inputs)
            yield from self.system.step()
        yield from self.system.close()


def make_replicas(ranks, sync, make_model, make_optimizer):
    """All begin with the same model."""
    table, made = Table(ranks), []
    for me in range(ranks):
        model = make_model()
        optimizer = make_optimizer(model.parameters())
        parameters = trained(model)
        group = LocalGroup(me, ranks, table)
        setup = Setup(optimizer, model, optimizer.step, parameters, ModelVector(parameters), group, timeout=60.0)
        made.append(Replica(model, optimizer, LocalSystem(sync, setup)))
    return made


def train(replicas, batches, seed=None):
    """With the batches of each rank, until all have come to the end; what ``settle()`` does then is up to ``meet``."""
    programs = [
        replace(replica.system.open(), training=replica.train(own))
        for replica, own in zip(replicas, batches, strict=True)
    ]
    Loopback(programs, seed=seed).run()


def meet(replicas):
    """All ranks get the average of all."""
    with mock.patch.object(own_models, "gather_json", gather_json), ThreadPoolExecutor(len(replicas)) as pool:
        assert all(pool.map(lambda replica: replica.system.meet(stays=True), replicas))


def trained(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def travelling(model, optimizer=None, with_state=True):
    """Of a model and its optimizer; without one, the model alone travels."""
    chosen = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    return Travelling(model, ModelVector(trained(model)), chosen, with_state and optimizer is not None)


def average(travellers, weights=None, *, adopts=False, freshest=0, layout=None, keep=()):
    """All of them in a group, as training does it; members in ``keep`` keep their optimizer's state."""
    size = len(travellers)
    offers = [traveller.pack(layout) for traveller in travellers]
    groups = [Assemble(1, tuple(range(size)), weight, 5, freshest, 0, True) for weight in weights or [1 / size] * size]
    averages = loopback(
        [
            DensePart(adopts).average(group, me, offer)
            for me, (group, offer) in enumerate(zip(groups, offers, strict=True))
        ]
    )
    for me, (traveller, mean) in enumerate(zip(travellers, averages, strict=True)):
        traveller.unpack(mean, layout, state=me not in keep)
