"""How the members of a group average their models: all of them, or only where they differ most from an old average."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl.collectives.allgather import gather
from spardl.collectives.dense_sum import dense_sum
from spardl.collectives.frames import Frames
from spardl.effects import Bytes, Collective
from spardl.errors import NonFiniteGradient, WireError
from spardl.kernels.api import Kernels, Pair
from spardl.protocols.models import Model, Values, weighed
from spardl.protocols.preduce.notes import Assemble
from spardl.schedule import cut_blocks
from spardl.selection import Selector
from spardl.wire import Codec


class DensePart:
    """Members sum what each has multiplied with its weight: all of them get the same bits.

    ``adopts``: the optimizer's state, its counters too, is that of the freshest member, instead of the mean. Its two
    long buffers are used again when the average has been taken. After a group that was called off somebody may still be
    reading them.
    """

    def __init__(self, adopts: bool = False) -> None:
        self._adopts = adopts
        self.entries = 0  # that the last average has changed
        self._buffers: tuple[Values, Values] | None = None
        self._in_use: tuple[Values, Values] | None = None

    def average(self, group: Assemble, me: int, offer: Model) -> Collective[Model]:
        own, total = self._in_use = self._take_buffers(offer.values)
        weighed(offer.values, group.weight, out=own)
        if self._adopts:
            own[offer.state :] = offer.values[offer.state :] if me == group.freshest else 0
        position = group.members.index(me)
        yield from dense_sum(len(group.members), position, own, total)
        counts, numbers = yield from _everyones(len(group.members), position, offer)
        freshest = group.members.index(group.freshest)
        return Model(total, offer.state, _maximum(counts), numbers[freshest] if self._adopts else _maximum(numbers))

    def take(self, average: Model) -> Model:
        self._buffers = self._in_use
        self.entries = len(average.values)
        return average

    def _take_buffers(self, values: Values) -> tuple[Values, Values]:
        buffers, self._buffers = self._buffers, None
        if buffers is None or buffers[0].shape != values.shape:
            buffers = np.empty_like(values), np.empty_like(values)
        return buffers


class SparsePart:
    """Members send the k largest differences of their weights from the *anchor*, the last average of all.

    What they sum of these is added to the anchor; a difference that a member has not sent stays in its own model.
    So members' models differ after it, but their weighted mean is what it was. What travels with the weights is sent
    whole, and so is everything in a group that has everyone, whose average becomes the anchor.
    """

    def __init__(self, k: int, anchor: Values, kernels: Kernels, codec: Codec) -> None:
        size = len(anchor)
        self._dense = DensePart()
        self._against: Values = -anchor  # so that adding it subtracts
        self._kernels, self._codec = kernels, codec
        self._selector = Selector(kernels, cut_blocks(size, k, 1), anchor.dtype, 0)
        self._difference = np.empty_like(anchor)
        self.size = size
        self.entries = 0  # that the last average has changed

    def average(self, group: Assemble, me: int, offer: Model) -> Collective["Model | _Change"]:
        if group.everyone:
            return (yield from self._dense.average(group, me, offer))
        position = group.members.index(me)
        sent = self._select(offer, position)
        total = yield from self._sum(group, position, sent)
        rest = Model(offer.values[self.size :], offer.state - self.size, offer.counts, offer.numbers)
        if not len(rest.values) + len(rest.counts) + len(rest.numbers):
            return _Change(offer, sent, total, None)
        return _Change(offer, sent, total, (yield from self._dense.average(group, me, rest)))

    def take(self, average: "Model | _Change") -> Model:
        if isinstance(average, Model):
            self.entries = len(average.values)
            np.negative(average.values[: self.size], out=self._against)
            return self._dense.take(average)
        offer, sent, total, rest = average
        self._apply(offer.values[: self.size], sent, total)
        self.entries = len(total[0])
        if rest is None:
            return offer
        offer.values[self.size :] = self._dense.take(rest).values
        return offer._replace(counts=rest.counts, numbers=rest.numbers)

    def _select(self, offer: Model, position: int) -> Pair:
        """This rank's largest differences, as they go on the wire."""
        selector = self._selector
        try:
            selector.accumulate(offer.values[: self.size], self._against, self._difference)
            ((indices, values),) = selector.select([0])
        except NonFiniteGradient as error:
            text = f"Partial Reduce: a weight on rank {position} is not finite, or is too large: at index {error.index}"
            raise NonFiniteGradient(text, rank=position, index=error.index) from None
        selector.thresholds = selector.learnt()
        rounded, _ = self._codec.round(values)
        return indices, rounded

    def _sum(self, group: Assemble, position: int, sent: Pair) -> Collective[Pair]:
        """Everyone's differences, multiplied with their weights by whoever adds them up, in the order of members."""
        coder = Frames(position, self._against.dtype, self._codec, self.size)
        frame = coder.write(sent, 0, self.size)
        head = np.array([group.weight]).view(np.uint8)
        frames = yield from gather(range(len(group.members)), position, np.concatenate([head, frame]))
        pairs = [self._read(message, source, coder) for source, message in enumerate(frames)]
        return self._kernels.add_many(pairs)

    def _read(self, message: Bytes, source: int, coder: Frames) -> Pair:
        if len(message) < 8:
            raise WireError(f"{len(message)} bytes arrived from rank {source}, expected a weight and a frame")
        (weight,) = message[:8].copy().view(np.float64)
        if not 0 <= weight <= 1:
            raise WireError(f"a weight of {weight} arrived from rank {source}")
        indices, values = coder.read(message[8:].copy(), source, 0, self.size)
        return indices, weighed(values, float(weight))

    def _apply(self, weights: Values, sent: Pair, total: Pair) -> None:
        """``weights`` + total − sent; where this rank has sent, from the anchor on, so that members agree there."""
        (indices, values), (own, differences) = total, sent
        weights[indices] += values
        summed = values[np.searchsorted(indices, own)]
        weights[own] = (summed - self._against[own]) + (self._difference[own] - differences)


class _Change(NamedTuple):
    """What a group makes of ``offer``, which it is written into when it counts."""

    offer: Model
    sent: Pair
    total: Pair
    rest: Model | None  # what travels with the weights, if anything does


def _everyones(
    members: int, position: int, offer: Model
) -> Collective[tuple[Sequence[npt.NDArray[np.int64]], Sequence[npt.NDArray[np.float64]]]]:
    """Counts and numbers, by member."""
    if not len(offer.counts) + len(offer.numbers):
        return [offer.counts] * members, [offer.numbers] * members
    frame = np.concatenate([offer.counts.view(np.uint8), offer.numbers.view(np.uint8)])
    frames = yield from gather(range(members), position, frame)
    counts, numbers = zip(*(_read(message, offer) for message in frames), strict=True)
    return counts, numbers


def _read(message: Bytes, offer: Model) -> tuple[Any, Any]:
    expected, cut = offer.counts.nbytes + offer.numbers.nbytes, offer.counts.nbytes
    if len(message) != expected:
        raise WireError(f"{len(message)} bytes of counts arrived, expected {expected}")
    return message[:cut].copy().view(np.int64), message[cut:].copy().view(np.float64)


def _maximum(parts: Sequence[Any]) -> Any:
    return np.maximum.reduce(parts)
