"""What was dropped, and who keeps it.

During a reduce the ledger notes, per block, what this rank sent and what it discarded after summation; when the result
is known, ``settle`` turns the accumulator into the new residual. The global policy obeys the law of conservation:
outside the result a rank keeps its own accumulator, on it what it discarded.
"""

from spardl.kernels.api import Indices, Kernels, Pair, Values

POLICIES = ("global", "partial", "local")


class Ledger:
    """One rank's notes on one reduce. ``own`` is the block that this rank holds after the reduce-scatter."""

    def __init__(self, kernels: Kernels, own: int, policy: str) -> None:
        self._kernels = kernels
        self._own = own
        self._policy = policy
        self._sent: dict[int, tuple[Indices, Values | None]] = {}
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
            for indices, _ in self._sent.values():
                self._kernels.arrays.clear_at(acc, indices)

    def _settle_global(self, acc: Values, result: list[Indices], overlays: list[Pair]) -> None:
        # Discarded was the whole sum at the index, received parts included, unless it was sent. Nothing was discarded
        # if all that was handed on of a block is in the result, as of the own one if there are no teams.
        received = [
            block for block, (indices, _) in enumerate(overlays) if len(indices) and not self._is_result(block, result)
        ]
        self._overwrite(acc, result, received, [overlays[block] for block in received])
        sent = sorted(self._sent)
        most = max((len(indices) for indices, _ in self._sent.values()), default=0)
        nothing = self._kernels.arrays.zeros(most, acc.dtype)
        left_behind = [
            (indices, nothing[: len(indices)] if error is None else error)
            for indices, error in (self._sent[block] for block in sent)
        ]
        self._overwrite(acc, result, sent, left_behind)
        for share in self._shares:
            self._kernels.add_where(acc, result[self._own], *share)

    def _is_result(self, block: int, result: list[Indices]) -> bool:
        return block in self._sent and self._sent[block][0] is result[block]

    def _overwrite(self, acc: Values, result: list[Indices], blocks: list[int], vectors: list[Pair]) -> None:
        """By a vector for each of the blocks, where the result has an index."""
        if blocks:
            self._kernels.overwrite_where_many(acc, [result[block] for block in blocks], vectors)
