"""The namespace for Numba's CUDA simulator: memory is NumPy's, and as strictly kept apart as a device's."""

import importlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.cuda.namespace import Slice

_simulator: Any = importlib.import_module("numba.cuda.simulator.cudadrv.devicearray")


class SimulatedArray:
    """Memory that only kernels and the namespace can see into, like a device's."""

    __slots__ = ("_memory", "_slice", "device")

    def __init__(self, memory: npt.NDArray[Any], device: int = 0, part: Slice | None = None) -> None:
        self._memory = memory
        self._slice = part  # None if it is not one of another
        self.device = device

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._memory.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._memory.strides

    @property
    def itemsize(self) -> int:
        return self._memory.itemsize

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, part: slice) -> "SimulatedArray":
        if not isinstance(part, slice):
            raise TypeError("an element of a device array was read on the host")
        whole, begin = self._slice or (self, 0)
        return SimulatedArray(self._memory[part], self.device, Slice(whole, begin + part.indices(len(self))[0]))

    def view(self, dtype: npt.DTypeLike) -> "SimulatedArray":
        return SimulatedArray(self._memory.view(dtype), self.device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a device array was iterated over on the host")

    def __array__(self, *_: Any, **__: Any) -> npt.NDArray[Any]:
        raise TypeError("a device array was converted to NumPy without being asked to")


class SimulatedNamespace:
    """Small blocks and digits by default: the simulator gives every thread of a block a thread of Python's."""

    def __init__(self, threads: int = 4, digit_bits: int = 4, device: int = 0) -> None:
        self.threads, self.digit_bits = threads, digit_bits
        self.device = device
        self.calls: Counter[str] = Counter()

    def empty(self, count: int, dtype: npt.DTypeLike) -> SimulatedArray:
        memory = np.empty(count, dtype)
        memory.view(np.uint8).fill(0xAB)  # whoever reads before writing shall notice
        return SimulatedArray(memory, self.device)

    def zeros(self, count: int, dtype: npt.DTypeLike) -> SimulatedArray:
        return SimulatedArray(np.zeros(count, dtype), self.device)

    def concatenate(self, parts: list[SimulatedArray]) -> SimulatedArray:
        return SimulatedArray(np.concatenate([part._memory for part in parts]), self.device)

    def slice_of(self, array: SimulatedArray) -> Slice:
        return array._slice or Slice(array, 0)

    def fill_with_zeros(self, array: SimulatedArray) -> None:
        array._memory.fill(0)

    def copy(self, array: SimulatedArray, out: SimulatedArray) -> None:
        np.copyto(out._memory, array._memory, casting="no")

    def running_sum(self, array: SimulatedArray) -> SimulatedArray:
        return SimulatedArray(np.cumsum(array._memory, dtype=np.int64), self.device)

    def to_device(self, array: npt.NDArray[Any], out: SimulatedArray | None = None) -> SimulatedArray:
        self.calls["to_device"] += 1
        self.calls["bytes_to_device"] += array.nbytes
        if out is None:
            return SimulatedArray(array.copy(), self.device)
        np.copyto(out._memory, array)
        return out

    def to_host(self, *arrays: SimulatedArray) -> list[npt.NDArray[Any]]:
        self.calls["waits"] += 1
        self.calls["to_host"] += len(arrays)
        self.calls["bytes_to_host"] += sum(array.nbytes for array in arrays)
        return [array._memory.copy() for array in arrays]

    def wait(self) -> None:
        self.calls["waits"] += 1

    def for_mpi(self, array: SimulatedArray) -> npt.NDArray[Any]:
        return array._memory

    def launch(self, kernel: Any, blocks: int, *args: Any) -> None:
        if blocks == 0:
            return
        self.calls["launches"] += 1
        kernel[blocks, self.threads](
            *(_simulator.FakeCUDAArray(arg._memory) if isinstance(arg, SimulatedArray) else arg for arg in args)
        )

    def adopt(self, array: Any, call: str, name: str, stream: int | None) -> SimulatedArray:
        """Torch's tensors pass for such on this device: their memory is the same."""
        if type(array).__module__ == "torch":
            array = SimulatedArray(np.from_dlpack(array), self.device)
        if not isinstance(array, SimulatedArray):
            raise TypeError(f"{call}: expected {name} on a CUDA device (a simulated one), got a {type(array).__name__}")
        if array.device != self.device:
            raise ValueError(
                f"{call}: expected {name} on CUDA device {self.device}, as before, got it on device {array.device}"
            )
        return array
