"""Sparse gossip (CHOCO-SGD): neighbours keep copies of each other's models, and send only how these have to change.

Every worker has a copy x̂ of its own model and of each in-neighbour's, as the neighbour has it. It sends the k largest
entries of x − x̂, which everyone who has that copy adds to it, the same bits everywhere; what is not sent stays in
x − x̂, and is owed. Then it moves by γ Σ w (x̂ of the neighbour − x̂ of its own).

Now and then a message has a digest of the copy as it should be. A copy that differs is sent whole.
"""

from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from spardl.collectives.frames import Frames
from spardl.effects import Bytes
from spardl.errors import WireError
from spardl.kernels.api import Kernels, Pair
from spardl.protocols.hop.intake import Blend
from spardl.protocols.models import Model, Values, weighed
from spardl.schedule import cut_blocks
from spardl.selection import Selector
from spardl.wire import Codec

DIGEST_EVERY = 64  # messages
_CHANGES, _WHOLE = 0, 1
_HEAD = np.dtype([("kind", "<u4"), ("has_digest", "<u4"), ("digest", "<u8"), ("length", "<u8")])


class Received(NamedTuple):
    """Of a neighbour: how its copy changes, or all of it; and what travels with the weights."""

    changes: Pair | Values
    digest: int | None
    rest: Values
    counts: Any


class SparsePart:
    """For models whose first elements are ``weights``, from which all start; they send ``k`` of them.

    ``neighbours``: those that send to this rank.
    """

    def __init__(
        self, weights: Values, example: Model, k: int, gamma: float, neighbours: Any, kernels: Kernels, codec: Codec
    ) -> None:
        self.size, self._gamma, self._codec = len(weights), gamma, codec
        self._rest, self._counts = len(example.values) - self.size, len(example.counts)
        self._dtype = weights.dtype
        self._copy = weights.copy()
        self._copies = {rank: weights.copy() for rank in neighbours}
        self._difference = np.empty_like(weights)
        self._scratch = np.empty_like(weights)
        self._selector = Selector(kernels, cut_blocks(self.size, k, 1), self._dtype, 0)
        self._sent = 0
        self.damaged: list[int] = []  # whose copies have been found to differ, since the last time somebody looked
        self._results = [np.empty_like(example.values) for _ in range(2)]

    # -- what is sent --------------------------------------------------------------------------------------------------

    def write(self, model: Model) -> Bytes:
        """The largest differences, which the own copy takes at once."""
        np.negative(self._copy, out=self._scratch)
        self._selector.accumulate(model.values[: self.size], self._scratch, self._difference)
        ((indices, values),) = self._selector.select([0])
        self._selector.thresholds = self._selector.learnt()
        changes, _ = self._codec.round(values)
        self._copy[indices] += changes
        self._sent += 1
        frame = self._frames(0).write((indices, changes), 0, self.size)
        return self._message(_CHANGES, frame, model, self._sent % DIGEST_EVERY == 0)

    def write_whole(self, model: Model) -> Bytes:
        """The own copy, right after ``write``, for a neighbour whose copy of it is damaged."""
        return self._message(_WHOLE, self._copy.view(np.uint8), model, True)

    def _message(self, kind: int, content: Bytes, model: Model, has_digest: bool) -> Bytes:
        head = np.zeros(1, _HEAD)
        head["kind"], head["has_digest"], head["length"] = kind, has_digest, len(content)
        if has_digest:
            head["digest"] = xxh3_64_intdigest(self._copy.data)
        rest = model.values[self.size :].view(np.uint8)
        return np.concatenate([head.view(np.uint8), content, rest, model.counts.view(np.uint8)])

    def read(self, array: Any, sender: int) -> Received:
        rest, counts = self._rest * self._dtype.itemsize, 8 * self._counts
        if not isinstance(array, np.ndarray) or len(array) < _HEAD.itemsize + rest + counts:
            raise WireError(f"what arrived from rank {sender} is too short for a change of its model")
        (head,) = array[: _HEAD.itemsize].copy().view(_HEAD)
        content, travelling = array[_HEAD.itemsize :][: int(head["length"])], array[len(array) - rest - counts :]
        if _HEAD.itemsize + int(head["length"]) + rest + counts != len(array) or head["kind"] > _WHOLE:
            raise WireError(f"what arrived from rank {sender} is no change of a model")
        told = int(head["digest"]) if head["has_digest"] else None
        changes = self._read_changes(int(head["kind"]), content.copy(), sender)
        return Received(
            changes, told, travelling[:rest].copy().view(self._dtype), travelling[rest:].copy().view(np.int64)
        )

    def _read_changes(self, kind: int, content: Bytes, sender: int) -> Pair | Values:
        if kind == _CHANGES:
            return self._frames(sender).read(content, sender, 0, self.size)
        if len(content) != self.size * self._dtype.itemsize:
            raise WireError(f"{len(content)} bytes arrived from rank {sender}, expected all of its weights")
        return content.view(self._dtype)

    def _frames(self, rank: int) -> Frames:
        return Frames(rank, self._dtype, self._codec, self.size)

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def blend(self, model: Model, blend: Blend, before: Model | None = None) -> Model:
        """``before`` is for parallel order, which copies do not have."""
        self._results.reverse()
        total = self._results[0]
        total[: self.size] = model.values[: self.size]
        weighed(model.values[self.size :], blend.own, total[self.size :])
        counts = [model.counts]
        for weight, tagged in blend.updates:
            received: Received = tagged.update
            self._take(tagged.sender, received)
            np.subtract(self._copies[tagged.sender], self._copy, out=self._scratch)
            self._scratch *= self._dtype.type(self._gamma * weight)
            total[: self.size] += self._scratch
            total[self.size :] += weighed(received.rest, weight)
            counts.append(received.counts)
        return Model(total, model.state, np.maximum.reduce(counts))

    def _take(self, sender: int, received: Received) -> None:
        copy = self._copies[sender]
        if isinstance(received.changes, tuple):
            indices, values = received.changes
            copy[indices] += values
        else:
            copy[:] = received.changes
        if received.digest is not None and xxh3_64_intdigest(copy.data) != received.digest:
            self.damaged.append(sender)

    def find_damaged(self) -> list[int]:
        found, self.damaged = self.damaged, []
        return found
