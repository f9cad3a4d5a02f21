"""What the phases of SparDL have in common on one rank during one reduce."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spardl import schedule
from spardl.collectives.frames import Frames
from spardl.effects import Bytes
from spardl.kernels.api import Kernels, Pair
from spardl.residual import Ledger
from spardl.selection import Selector, require_finite_sum
from spardl.wire import Codec


@dataclass(frozen=True, slots=True)
class Party:
    """The tools of one rank, and its place."""

    rank: int
    layout: schedule.Teams
    blocks: schedule.Blocks
    kernels: Kernels
    codec: Codec
    frames: Frames
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
        return self.frames.write(pair, *self.bounds_of(block))

    def message(self, blocks: Sequence[int], vectors: Sequence[Pair]) -> Any:
        """The entries of several blocks, as a payload."""
        return self.frames.write_message(vectors, [self.bounds_of(block) for block in blocks])

    def bounds_of(self, block: int) -> tuple[int, int]:
        return int(self.blocks.bounds[block]), int(self.blocks.bounds[block + 1])

    def as_on_the_wire(self, pair: Pair, holders: int) -> Pair:
        """The held block as the receivers will see it; the rounding error is shared by the ranks that hold it."""
        indices, values = pair
        rounded, error = self.codec.round(values)
        self.ledger.share(indices, None if error is None else self.kernels.arrays.divide(error, holders))
        return indices, rounded

    def keep_largest(self, pair: Pair, holders: int) -> Pair:
        """The budgeted entries of a sum that ``holders`` ranks have; each keeps a share of the rest."""
        kept = self.kernels.split(*pair, self.budget)
        self.ledger.share(kept.rest_indices, self.kernels.arrays.divide(kept.rest_values, holders))
        require_finite_sum(kept.indices, kept.values, self.rank, self.kernels.arrays)
        return kept.indices, kept.values
