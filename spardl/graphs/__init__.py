"""Communication graphs for decentralised training: who sends models to whom, and how much each one counts.

>>> import spardl
>>> ring = spardl.graph("ring-based", 8)
>>> ring.inward[0]
(1, 4, 7)
>>> round(ring.spectral_gap, 4)
0.5
"""

from spardl.graphs.gaps import UNREACHED
from spardl.graphs.make import graph
from spardl.graphs.names import NAMES, fitting
from spardl.graphs.topology import Graph

__all__ = ["NAMES", "UNREACHED", "Graph", "fitting", "graph"]
