"""Sparse entries into dense vectors, a thread per entry. Indices occur once, so that no two threads meet."""

from typing import Any

from spardl.kernels.cuda.jit import cuda, device, kernel


@kernel("VIV")
def add_at(dense: Any, indices: Any, values: Any) -> None:
    at = cuda.grid(1)
    if at < len(indices):
        dense[indices[at]] += values[at]


@kernel("VI")
def clear_at(dense: Any, indices: Any) -> None:
    at = cuda.grid(1)
    if at < len(indices):
        dense[indices[at]] = 0


@device
def is_among(wanted: Any, index: Any) -> Any:
    """Whether the sorted indices ``wanted`` have this one."""
    low, high = 0, len(wanted)
    while low < high:
        middle = (low + high) // 2
        if wanted[middle] < index:
            low = middle + 1
        else:
            high = middle
    return low < len(wanted) and wanted[low] == index


@kernel("VIIV")
def overwrite_at_wanted(dense: Any, wanted: Any, indices: Any, values: Any) -> None:
    at = cuda.grid(1)
    if at < len(indices) and is_among(wanted, indices[at]):
        dense[indices[at]] = values[at]


@kernel("VIIV")
def add_at_wanted(dense: Any, wanted: Any, indices: Any, values: Any) -> None:
    at = cuda.grid(1)
    if at < len(indices) and is_among(wanted, indices[at]):
        dense[indices[at]] += values[at]


@kernel("VIVvv")
def write_mean_at(dense: Any, indices: Any, values: Any, ranks: Any, scale: Any) -> None:
    """The mean over ranks of what is their sum, times ``scale``."""
    at = cuda.grid(1)
    if at < len(indices):
        dense[indices[at]] = values[at] / ranks * scale
