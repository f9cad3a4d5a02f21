"""What the phases of SparDL have in common on one rank during one reduce."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spardl import schedule
from spardl.effects import Bytes
from spardl.kernels.api import Kernels, Pair
from spardl.residual import Ledger
from spardl.selection import Selector, overflow
from spardl.wire import Codec


@dataclass(frozen=True, slots=True)
class Party:
    """The tools of one rank, and its place."""

    rank: int
    layout: schedule.Teams
    blocks: schedule.Blocks
    dtype: np.dtype[Any]
    kernels: Kernels
    codec: Codec
    selector: Selector
    ledger: Ledger

    @property
    def position(self) -> int:
        return self.layout.place(self.rank).position

    @property
    def team(self) -> int:
        return self.layout.place(self.rank).team

    @property
    def budget(self) -> int:
        """How many entries of the own block are to be kept."""
        return self.blocks.budgets[self.position]

    def frame(self, block: int, pair: Pair) -> Bytes:
        lo, hi = self.blocks.bounds[block : block + 2].tolist()
        return self.codec.encode(*pair, lo, hi - lo)

    def read(self, frame: Bytes, sender: int) -> Pair:
        """The entries in a frame from rank ``sender``, which must have gradients of our type."""
        block = self.codec.decode(frame, self.selector.index_dtype == np.int64)
        if block.values.dtype != self.dtype:
            mine, theirs = (self.rank, self.dtype), (sender, block.values.dtype)
            (a, dtype_a), (b, dtype_b) = sorted((mine, theirs), key=lambda known: known[0])
            raise TypeError(f"ranks disagree on the gradient's dtype: {dtype_a} on rank {a}, {dtype_b} on rank {b}")
        return block.indices, block.values

    def as_on_the_wire(self, pair: Pair, holders: int) -> Pair:
        """The held block as the receivers will see it; the rounding error is shared by the ranks that hold it."""
        indices, values = pair
        rounded, error = self.codec.round(values)
        self.ledger.share(indices, None if error is None else error / values.dtype.type(holders))
        return indices, rounded

    def keep_largest(self, pair: Pair, holders: int) -> Pair:
        """The budgeted entries of a sum that ``holders`` ranks have; each keeps a share of the rest."""
        kept = self.kernels.split(*pair, self.budget)
        self.ledger.share(kept.rest_indices, kept.rest_values / self.dtype.type(holders))
        if not np.isfinite(kept.values).all():
            raise overflow(kept.indices, kept.values, self.rank)
        return kept.indices, kept.values
