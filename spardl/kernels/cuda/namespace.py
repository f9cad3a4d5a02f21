"""What the host side needs of a device: memory, copies, running sums, launches. Nothing else touches CuPy.

There is one implementation with CuPy (``with_cupy.py``) and one for Numba's simulator (``simulated.py``), so that what
is written against this runs on machines without a GPU just as on one. Both count what they are asked for: tests read
from that what crossed to the host, and how often it was waited for.
"""

from collections import Counter
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy.typing as npt

DeviceArray: TypeAlias = Any  # one-dimensional, contiguous; has len, dtype, view and slices, and nothing that copies


class Slice(NamedTuple):
    """Part of an array of the same dtype."""

    whole: DeviceArray
    begin: int


class Namespace(Protocol):
    """One device and the stream in use there."""

    threads: int  # per block
    digit_bits: int  # of a radix select's digits
    # "launches", "to_host" (copies), "bytes_to_host", "to_device", "bytes_to_device", "waits" (for the stream)
    calls: Counter[str]

    def empty(self, count: int, dtype: npt.DTypeLike) -> DeviceArray: ...

    def zeros(self, count: int, dtype: npt.DTypeLike) -> DeviceArray: ...

    def concatenate(self, parts: list[DeviceArray]) -> DeviceArray:
        """One after the other, on the device."""

    def slice_of(self, array: DeviceArray) -> Slice:
        """What ``array`` is a slice of; all of itself if it is none. Slices of one array have the same whole."""

    def fill_with_zeros(self, array: DeviceArray) -> None: ...

    def copy(self, array: DeviceArray, out: DeviceArray) -> None:
        """Within the device; of equal length and dtype."""

    def running_sum(self, array: DeviceArray) -> DeviceArray:
        """Of integers, as int64: each with all before it."""

    def to_device(self, array: npt.NDArray[Any], out: DeviceArray | None = None) -> DeviceArray:
        """A copy, in stream order. ``array`` may be changed as soon as this returns."""

    def to_host(self, *arrays: DeviceArray) -> list[npt.NDArray[Any]]:
        """Copies in page-locked memory, finished when this returns: the stream has been waited for, once."""

    def wait(self) -> None:
        """For all that was put on the stream."""

    def for_mpi(self, array: DeviceArray) -> Any:
        """The array, as mpi4py takes it."""

    def launch(self, kernel: Any, blocks: int, *args: Any) -> None:
        """Runs a kernel with ``threads`` threads in each of ``blocks`` blocks; none of either is no launch."""

    def adopt(self, array: Any, call: str, name: str, stream: int | None) -> DeviceArray:
        """A user's array as this device's, without a copy. Raises if it is elsewhere.

        From now on work is put on this stream, by default the one that is current for CuPy.
        """
