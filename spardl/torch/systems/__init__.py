"""Systems that do not wait for everyone, one file each; by the settings that ask for them."""

from collections.abc import Callable
from typing import Any

from spardl.torch.sync import RNA, Gossip, Hop, PartialReduce
from spardl.torch.systems.handle import SystemHandle
from spardl.torch.systems.hop import GossipSystem, GraphHandle, HopSystem
from spardl.torch.systems.preduce import PartialReduceHandle, PartialReduceSystem
from spardl.torch.systems.rna import RnaHandle, RnaSystem
from spardl.torch.systems.system import Setup, System

SYSTEMS: dict[type, tuple[type[SystemHandle], Callable[[Any, Setup], System]]] = {
    RNA: (RnaHandle, RnaSystem),
    PartialReduce: (PartialReduceHandle, PartialReduceSystem),
    Hop: (GraphHandle, HopSystem),
    Gossip: (GraphHandle, GossipSystem),
}
