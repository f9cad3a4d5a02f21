"""What was dropped, and who keeps it.

During a reduce the ledger notes, per block, what this rank sent and what it discarded after summation; when the result
is known, ``settle`` turns the accumulator into the new residual. The global policy obeys the law of conservation:
outside the result a rank keeps its own accumulator, on it what it discarded.

The other two are the SparDL paper's, for comparison, and lose gradients. A rank has *sent* an entry if it handed it on
in the reduce-scatter, or selected it of its own block, which goes to everyone. ``"partial"`` forgets what was sent at
indices of the result: what other ranks dropped of that on the way is lost (in-procedure residuals); what a rank did not
send (local) and what the result lacks (end-procedure) is kept. ``"local"`` forgets all that was sent.
"""

from collections.abc import Mapping

from spardl.kernels.api import Indices, Kernels, Pair, Values

POLICIES = ("global", "partial", "local")


class Residual:
    """What a rank owes: a dense vector, and the corrections that have yet to be written into it.

    Kernels that have a ``corrector`` do that when they pass over the vector the next time. Until all of it has been
    passed over the corrections stay; to write one twice does no harm.
    """

    def __init__(self, kernels: Kernels, dense: Values, corrections: Pair | None = None) -> None:
        self._kernels = kernels
        self.dense, self.corrections = dense, corrections

    def settled(self) -> Values:
        """The dense vector, complete."""
        if self.corrections is not None:
            indices, values = self.corrections
            self._kernels.overwrite_where(self.dense, indices, indices, values)
            self.corrections = None
        return self.dense


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
            self._overwrite(acc, result, self._left_behind(acc, rounding=False))
        else:
            for indices, _ in self._sent.values():
                self._kernels.arrays.clear_at(acc, indices)

    def settle_later(self, acc: Values, result: list[Indices], overlays: list[Pair]) -> Pair | None:
        """The same, but for corrections that are left to the next pass: the residual's, if there are any."""
        corrector = self._kernels.corrector
        if corrector is None or self._policy != "global" or self._shares:
            self.settle(acc, result, overlays)
            return None
        nothing = result[0][:0], acc[:0]
        received, sent = self._received(result, overlays), self._left_behind(acc)
        blocks = range(len(result))
        return corrector.corrections(
            result, [received.get(block, nothing) for block in blocks], [sent.get(block, nothing) for block in blocks]
        )

    def _settle_global(self, acc: Values, result: list[Indices], overlays: list[Pair]) -> None:
        # Discarded was the whole sum at the index, received parts included, unless it was sent.
        self._overwrite(acc, result, self._received(result, overlays))
        self._overwrite(acc, result, self._left_behind(acc))
        for share in self._shares:
            self._kernels.add_where(acc, result[self._own], *share)

    def _received(self, result: list[Indices], overlays: list[Pair]) -> dict[int, Pair]:
        """By block. Nothing was discarded if all that was handed on is in the result, as of the own without teams."""
        return {
            block: overlay
            for block, overlay in enumerate(overlays)
            if len(overlay[0]) and not self._is_result(block, result)
        }

    def _left_behind(self, acc: Values, rounding: bool = True) -> dict[int, Pair]:
        """By block: where something was sent, nothing but the ``rounding`` error is left, or not even that."""
        most = max((len(indices) for indices, _ in self._sent.values()), default=0)
        nothing = self._kernels.arrays.zeros(most, acc.dtype)
        return {
            block: (indices, error if rounding and error is not None else nothing[: len(indices)])
            for block, (indices, error) in sorted(self._sent.items())
        }

    def _is_result(self, block: int, result: list[Indices]) -> bool:
        return block in self._sent and self._sent[block][0] is result[block]

    def _overwrite(self, acc: Values, result: list[Indices], vectors: Mapping[int, Pair]) -> None:
        """By a vector for each of some blocks, where the result has an index."""
        if vectors:
            self._kernels.overwrite_where_many(acc, [result[block] for block in vectors], list(vectors.values()))
