"""Sparse all-reduce for data-parallel training on slow or uneven clusters."""

from spardl.runtime.loopback import loopback
from spardl.sparse import SparseVector

__all__ = ["SparseVector", "loopback"]
