"""Sparse synchronisation for any torch optimizer.

>>> import spardl.torch as spt
>>> handle = spt.distribute(optimizer, model, sync=spt.SparDL(density=0.01))  # doctest: +SKIP
"""

from spardl.protocols.rna.policies import All, Majority, PowerOfChoices, Solo
from spardl.runtime import library as library  # first: it says so if there is no MPI
from spardl.torch.checkpoint import join_states
from spardl.torch.ddp import ddp_hook
from spardl.torch.distribute import distribute
from spardl.torch.handle import Handle
from spardl.torch.preemption import StopSignals
from spardl.torch.stats import Stats
from spardl.torch.sync import RNA, Dense, Gossip, Hop, PartialReduce, SparDL, Warmup
from spardl.torch.systems.handle import SystemHandle
from spardl.torch.systems.hop import GraphHandle
from spardl.torch.systems.preduce import PartialReduceHandle
from spardl.torch.systems.rna import RnaHandle

__all__ = [
    "RNA",
    "All",
    "Dense",
    "Gossip",
    "GraphHandle",
    "Handle",
    "Hop",
    "Majority",
    "PartialReduce",
    "PartialReduceHandle",
    "PowerOfChoices",
    "RnaHandle",
    "Solo",
    "SparDL",
    "Stats",
    "StopSignals",
    "SystemHandle",
    "Warmup",
    "ddp_hook",
    "distribute",
    "join_states",
]
