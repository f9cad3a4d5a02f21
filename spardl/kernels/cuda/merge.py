"""Two sorted sparse vectors into one, by merge path: every thread merges an equally long stretch.

Where its stretch begins in both vectors a thread finds by bisection. It walks the stretch twice: to count what it will
write, and, when the counts of all threads before it are known, to write. Vectors of this kind are short and lie in
cache, so they are not staged in shared memory.
"""

from typing import Any

from numba import int32

from spardl.kernels.cuda.block import before_tile, scan
from spardl.kernels.cuda.jit import MOST_THREADS, cuda, device, kernel

STRETCH = 8  # entries of both vectors per thread

# What becomes of entries. ADD: summed. OVERLAY: what the second has is added to the first, or else to the dense vector.
# OVERRIDE: the first's, or else the second's, if at or above the floor.
ADD, OVERLAY, OVERRIDE = 0, 1, 2


@device
def crossing(indices_a: Any, indices_b: Any, diagonal: Any) -> Any:
    """How many of the first ``diagonal`` entries of the merged vectors come from the first; it goes first on ties."""
    low = max(0, diagonal - len(indices_b))
    high = min(diagonal, len(indices_a))
    while low < high:
        middle = (low + high) // 2
        if indices_a[middle] <= indices_b[diagonal - 1 - middle]:
            low = middle + 1
        else:
            high = middle
    return low


@device
def walk(
    kind: Any,
    indices_a: Any,
    values_a: Any,
    indices_b: Any,
    values_b: Any,
    dense: Any,
    floor: Any,
    place: Any,
    indices: Any,
    values: Any,
) -> Any:
    """Merges this thread's stretch and writes it from ``place`` on, or only counts if that is negative."""
    entries = len(indices_a) + len(indices_b)
    begin = min((cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * STRETCH, entries)
    i = crossing(indices_a, indices_b, begin)
    j = begin - i
    count = 0
    for _ in range(min(STRETCH, entries - begin)):
        if j == len(indices_b) or (i < len(indices_a) and indices_a[i] <= indices_b[j]):
            index, value = indices_a[i], values_a[i]
            if kind != OVERRIDE and j < len(indices_b) and indices_b[j] == index:
                value += values_b[j]
            i += 1
            new = True
        else:
            index, value = indices_b[j], values_b[j]
            new = i == 0 or indices_a[i - 1] != index  # else it went with the first's
            if new and kind == OVERLAY:
                value = dense[index] + value
            j += 1
        if new and (kind != OVERRIDE or abs(value) >= floor):
            if place >= 0:
                indices[place + count] = index
                values[place + count] = value
            count += 1
    return count


@kernel("qIVIVVvLIV")
def merge_count(
    kind: Any,
    indices_a: Any,
    values_a: Any,
    indices_b: Any,
    values_b: Any,
    dense: Any,
    floor: Any,
    counts: Any,
    indices: Any,
    values: Any,
) -> None:
    """``counts`` gets how many entries each block of threads will write."""
    shared = cuda.shared.array(MOST_THREADS, int32)
    own = walk(kind, indices_a, values_a, indices_b, values_b, dense, floor, -1, indices, values)
    _, total = scan(shared, own)
    if cuda.threadIdx.x == 0:
        counts[cuda.blockIdx.x] = total


@kernel("qIVIVVvLIV")
def merge_write(
    kind: Any,
    indices_a: Any,
    values_a: Any,
    indices_b: Any,
    values_b: Any,
    dense: Any,
    floor: Any,
    sums: Any,
    indices: Any,
    values: Any,
) -> None:
    """Writes the entries; ``sums`` are the running sums of the counts."""
    shared = cuda.shared.array(MOST_THREADS, int32)
    own = walk(kind, indices_a, values_a, indices_b, values_b, dense, floor, -1, indices, values)
    before, _ = scan(shared, own)
    place = before_tile(sums, cuda.blockIdx.x) + before
    walk(kind, indices_a, values_a, indices_b, values_b, dense, floor, place, indices, values)
