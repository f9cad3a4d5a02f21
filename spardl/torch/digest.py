"""Whether ranks have the same tensors: digests of them, and who differs from whom. Knows neither MPI nor handles."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from spardl.collectives.bruck import bruck
from spardl.effects import Bytes, Collective
from spardl.errors import WireError
from spardl.torch import trees

Digests = npt.NDArray[np.uint64]
_WIDTH = 8  # bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """Ranks differ: those that have the same tensors, by position, the most common first; and the first tensor."""

    alike: tuple[tuple[int, ...], ...]
    first: int

    @property
    def odd(self) -> tuple[int, ...]:
        """Who differs from the most; everyone where no tensors are the most common."""
        most, second = self.alike[:2]
        blamed = self.alike if len(most) == len(second) else self.alike[1:]
        return tuple(sorted(position for positions in blamed for position in positions))


def digests(tensors: Iterable[torch.Tensor]) -> Digests:
    """XXH3-64 of the elements of each.

    A contiguous tensor on the CPU is read where it is. Others are copied there first, one at a time.
    """
    return np.array([xxhash.xxh3_64_intdigest(trees.tensor_bytes(tensor).data) for tensor in tensors], np.uint64)


def compare(ranks: int, me: int, mine: Digests) -> Collective[Difference | None]:
    """All ranks exchange 8 bytes; only if those differ, the digests of all tensors."""
    total = np.frombuffer(xxhash.xxh3_64_digest(mine.data), np.uint8)
    totals = yield from bruck(range(ranks), me, total)
    if all(bytes(other) == bytes(total) for other in totals):
        return None
    frames = yield from bruck(range(ranks), me, mine.view(np.uint8))
    return difference([_from_frame(frame, len(mine)) for frame in frames])


def difference(by_rank: Sequence[Digests]) -> Difference | None:
    """Who has other digests than whom, and which is the first that differs; None if all are equal."""
    differing = np.flatnonzero(np.any(np.stack(by_rank) != by_rank[0], axis=0))
    if len(differing) == 0:
        return None
    alike: dict[bytes, list[int]] = {}
    for position, row in enumerate(by_rank):
        alike.setdefault(row.tobytes(), []).append(position)
    return Difference(tuple(map(tuple, sorted(alike.values(), key=len, reverse=True))), int(differing[0]))


def _from_frame(frame: Bytes, count: int) -> Digests:
    if len(frame) != count * _WIDTH:
        raise WireError(f"expected {count} digests of {_WIDTH} bytes, got {len(frame)} bytes")
    return np.frombuffer(frame.tobytes(), np.uint64)
