"""Models of Hop's and gossip's workers as vectors: sent whole, blended, averaged."""

from typing import Any

import numpy as np

from spardl.effects import Bytes
from spardl.errors import WireError
from spardl.protocols.hop.intake import Blend
from spardl.protocols.models import Model, Values, weighed


class DensePart:
    """For models like ``example``. Results are in two buffers in turn: the last one may still be in use."""

    def __init__(self, example: Model) -> None:
        self._dtype, self._size, self._counts = example.values.dtype, len(example.values), len(example.counts)
        self._results = [np.empty_like(example.values) for _ in range(2)]
        self._scratch = np.empty_like(example.values)

    def write(self, model: Model) -> Bytes:
        """A copy: the model goes on changing while it is sent."""
        return np.concatenate([model.values.view(np.uint8), model.counts.view(np.uint8)])

    def read(self, array: Any, sender: int) -> Model:
        expected = self._size * self._dtype.itemsize
        if not isinstance(array, np.ndarray) or len(array) != expected + 8 * self._counts:
            size = "nothing" if array is None else f"{len(array)} bytes"
            raise WireError(f"{size} arrived from rank {sender}, expected a model of {expected + 8 * self._counts}")
        return Model(array[:expected].view(self._dtype), self._size, _aligned(array[expected:]))

    def blend(self, model: Model, blend: Blend, before: Model | None = None) -> Model:
        own = model if before is None else before
        total = self._next_result()
        weighed(own.values, blend.own, total)
        counts = [model.counts]
        for weight, tagged in blend.updates:
            total += weighed(tagged.update.values, weight, self._scratch)
            counts.append(tagged.update.counts)
        if before is not None:
            total += np.subtract(model.values, before.values, out=self._scratch)
        return Model(total, self._size, np.maximum.reduce(counts))

    def _next_result(self) -> Values:
        self._results.reverse()
        return self._results[0]

    # -- gossip --------------------------------------------------------------------------------------------------------

    def half_way(self, sent: Model, received: Model) -> Model:
        shift = (received.values - sent.values) / 2
        return Model(shift, self._size, received.counts)

    def moved(self, model: Model, shift: Model) -> Model:
        return Model(model.values + shift.values, self._size, np.maximum(model.counts, shift.counts))


def _aligned(array: Bytes) -> Any:
    return array.copy().view(np.int64)
