"""Several blocks of a gradient in one launch, so that what a launch costs is paid once per message and not per block.

Every block is a *segment*: it has tiles of its own, and a row in a table of integers that goes to the device with the
launch. A block of threads finds the row of its tile there by bisection. The first two columns of every table are the
same; what else a tile has to know of its segment is up to the kernel.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.cuda.block import before_tile
from spardl.kernels.cuda.jit import cuda, device
from spardl.kernels.cuda.namespace import DeviceArray, Namespace

FIRST_TILE, END_TILE = 0, 1


@device
def segment_of(table: Any, columns: Any, tile: Any) -> Any:
    """The segment that has this tile. One without tiles begins where the next does, and is never the last to do so."""
    low, high = 0, len(table) // columns
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle * columns + FIRST_TILE] <= tile:
            low = middle
        else:
            high = middle
    return low


@device
def place_in_segment(table: Any, row: Any) -> Any:
    """How many threads of the segment whose row begins at ``row`` stand before this one."""
    return (cuda.blockIdx.x - table[row + FIRST_TILE]) * cuda.blockDim.x + cuda.threadIdx.x


@device
def before_in_segment(table: Any, row: Any, sums: Any, tile: Any) -> Any:
    """The sum over the segment's tiles before this one, of ``sums`` that run over the tiles of all segments."""
    return before_tile(sums, tile) - before_tile(sums, table[row + FIRST_TILE])


def make_table(
    tiles: Sequence[int], *columns: Sequence[int] | npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], int]:
    """A row for each segment, all in one array, given how many tiles they have; and how many tiles there are."""
    ends = np.cumsum(tiles, dtype=np.int64)
    rows = np.stack([ends - np.array(tiles, np.int64), ends, *(np.array(column, np.int64) for column in columns)], 1)
    return rows.ravel(), int(sum(tiles))


def begins_of(lengths: Sequence[int]) -> list[int]:
    """Where vectors of these lengths begin that follow one another."""
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()][:-1]


def upload(on: Namespace, *arrays: npt.NDArray[Any]) -> list[DeviceArray]:
    """Small arrays of the host, in one copy."""
    padded = [-(-array.nbytes // 8) * 8 for array in arrays]
    begins = begins_of(padded)
    everything = np.zeros(sum(padded), np.uint8)
    for array, begin in zip(arrays, begins, strict=True):
        everything[begin : begin + array.nbytes] = array.view(np.uint8)
    there = on.to_device(everything)
    return [there[begin : begin + array.nbytes].view(array.dtype) for array, begin in zip(arrays, begins, strict=True)]
