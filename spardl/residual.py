"""What was dropped, and who keeps it.

During a reduce the ledger notes, per block, what this rank sent and what it discarded after summation; when the result
is known, ``settle`` turns the accumulator into the new residual. The global policy obeys the law of conservation:
outside the result a rank keeps its own accumulator, on it what it discarded.
"""

from spardl.kernels.api import Indices, Kernels, Pair, Values

POLICIES = ("global", "partial", "local")


class Ledger:
    """One rank's notes on one reduce. ``own`` is the block that this rank holds after the reduce-scatter."""

    def __init__(self, kernels: Kernels, blocks: int, own: int, policy: str) -> None:
        self._kernels = kernels
        self._own = own
        self._policy = policy
        self._sent: list[tuple[Indices, Values | None] | None] = [None] * blocks
        self._shares: list[Pair] = []

    def sent(self, block: int, indices: Indices, left_behind: Values | None) -> None:
        """``indices`` of the block were handed on, but for the rounding error ``left_behind``."""
        self._sent[block] = (indices, left_behind)

    def share(self, indices: Indices, values: Values | None) -> None:
        """This rank's share of what the ranks that hold the own block dropped from it."""
        if values is not None and len(indices):
            self._shares.append((indices, values))

    def settle(self, acc: Values, result: list[Indices], overlays: list[Pair]) -> None:
        """Turns ``acc`` into the new residual; ``result`` holds the indices of the final result, block by block."""
        if self._policy == "global":
            self._settle_global(acc, result, overlays)
        elif self._policy == "partial":
            for indices in result:
                self._kernels.arrays.clear_at(acc, indices)
        else:
            for sent in self._sent:
                if sent is not None:
                    self._kernels.arrays.clear_at(acc, sent[0])

    def _settle_global(self, acc: Values, result: list[Indices], overlays: list[Pair]) -> None:
        for wanted, overlay, sent in zip(result, overlays, self._sent, strict=True):
            # Discarded was the whole sum at the index, received parts included, unless it was sent.
            self._kernels.overwrite_where(acc, wanted, *overlay)
            if sent is not None:
                indices, left_behind = sent
                if left_behind is None:
                    left_behind = self._kernels.arrays.zeros(len(indices), acc.dtype)
                self._kernels.overwrite_where(acc, wanted, indices, left_behind)
        for share in self._shares:
            self._kernels.add_where(acc, result[self._own], *share)
