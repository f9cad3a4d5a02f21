"""All-gather of sparse vectors, on its own."""

import numpy as np

from spardl import kernels
from spardl.collectives.bruck import bruck
from spardl.collectives.recursive_doubling import recursive_doubling
from spardl.effects import Collective
from spardl.errors import WireError
from spardl.runtime.group import CommLike, resolve
from spardl.runtime.limit import time_limit
from spardl.runtime.mpi import run
from spardl.sparse import SparseVector, index_dtype
from spardl.wire import Codec

_ALGORITHMS = {"bruck": bruck, "recursive_doubling": recursive_doubling}


def allgather(
    comm: CommLike,
    vec: SparseVector,
    *,
    algorithm: str = "bruck",
    timeout: float | None = None,
    warn_after: float | None = None,
) -> list[SparseVector]:
    """Every rank's vector, by rank. ``recursive_doubling`` needs a power of two of ranks.

    The vectors may differ in size, type and number of entries. ``timeout`` and ``warn_after`` are as for
    ``SparseAllreduce``.
    """
    if algorithm not in _ALGORITHMS:
        raise ValueError(f"allgather: expected algorithm in {tuple(_ALGORITHMS)}, got {algorithm!r}")
    if not isinstance(vec, SparseVector):
        raise TypeError(f"allgather: expected vec to be a SparseVector, got {type(vec).__name__}")
    group = resolve(comm, time_limit(timeout))
    generator = _gather_vectors(range(group.size), group.me, vec, algorithm)
    return run(comm, generator, timeout=timeout, warn_after=warn_after)


def _gather_vectors(ranks: range, position: int, vec: SparseVector, algorithm: str) -> Collective[list[SparseVector]]:
    codec = Codec(kernels.load())
    frame = codec.encode(vec.indices, vec.values, 0, vec.size)
    frames = yield from _ALGORITHMS[algorithm](ranks, position, frame)
    blocks = codec.decode_all(frames, wide_indices=True)
    for rank, block in zip(ranks, blocks, strict=True):
        if block.base != 0:
            raise WireError(f"frame of the elements from {block.base} on from rank {rank}, expected a whole vector")
    return [
        SparseVector.trusted(b.indices.astype(index_dtype(b.length), copy=False), np.array(b.values), b.length)
        for b in blocks
    ]
