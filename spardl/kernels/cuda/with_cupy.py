"""The namespace of a real device. CuPy has the memory, copies, streams and running sums; Numba launches the kernels."""

import functools
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import cupyx
import numpy as np
import numpy.typing as npt
from numba.core.errors import NumbaPerformanceWarning

from spardl.kernels import cuda_device_of
from spardl.kernels.cuda.jit import MOST_DIGIT_BITS, MOST_THREADS
from spardl.kernels.cuda.jit import numba_cuda as cuda
from spardl.kernels.cuda.namespace import Slice


def require_device(device: int) -> None:
    """Raises ValueError, with the driver's own words, if there is no such device."""
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ValueError(f"backend 'cuda': no CUDA device can be used here ({error})") from error
    if device >= devices:
        raise ValueError(f"backend 'cuda': expected one of {devices} CUDA devices, got device {device}")


class CupyNamespace:
    """One device; the stream is the one that was current when the last gradient was handed in."""

    threads = MOST_THREADS
    digit_bits = MOST_DIGIT_BITS

    def __init__(self, device: int) -> None:
        self.device = device
        self.calls: Counter[str] = Counter()
        with cupy.cuda.Device(device):
            self._stream = cupy.cuda.get_current_stream()
        self._under_way: list[tuple[Any, Any]] = []  # host memory that must live until its copy is done

    @contextmanager
    def _here(self) -> Iterator[None]:
        """CuPy hands out memory in the order of the current stream, so everything has to happen on ours."""
        with cupy.cuda.Device(self.device), self._stream:
            yield

    def empty(self, count: int, dtype: npt.DTypeLike) -> Any:
        with self._here():
            return cupy.empty(count, dtype)

    def zeros(self, count: int, dtype: npt.DTypeLike) -> Any:
        with self._here():
            return cupy.zeros(count, dtype)

    def concatenate(self, parts: list[Any]) -> Any:
        with self._here():
            return cupy.concatenate(parts)

    def slice_of(self, array: Any) -> Slice:
        whole = array.base
        if whole is None or whole.dtype != array.dtype:
            return Slice(array, 0)
        return Slice(whole, (array.data.ptr - whole.data.ptr) // array.itemsize)

    def fill_with_zeros(self, array: Any) -> None:
        with self._here():
            if array.nbytes:
                array.data.memset_async(0, array.nbytes, self._stream)

    def copy(self, array: Any, out: Any) -> None:
        with self._here():
            if array.nbytes:
                out.data.copy_from_device_async(array.data, array.nbytes, self._stream)

    def running_sum(self, array: Any) -> Any:
        with self._here():
            return cupy.cumsum(array, dtype=np.int64) if len(array) else cupy.empty(0, np.int64)

    def to_device(self, array: npt.NDArray[Any], out: Any | None = None) -> Any:
        self.calls["to_device"] += 1
        self.calls["bytes_to_device"] += array.nbytes
        self._under_way = [(event, memory) for event, memory in self._under_way if not event.done]
        with self._here():
            if out is None:
                out = cupy.empty(array.shape, array.dtype)
            if array.nbytes:
                pinned = _page_locked(array)
                np.copyto(pinned, array)
                out.set(pinned, stream=self._stream)
                self._under_way.append((self._stream.record(), pinned))
            return out

    def to_host(self, *arrays: Any) -> list[npt.NDArray[Any]]:
        self.calls["waits"] += 1
        self.calls["to_host"] += len(arrays)
        self.calls["bytes_to_host"] += sum(array.nbytes for array in arrays)
        with self._here():
            copies = [_page_locked(array) for array in arrays]
            for array, copy in zip(arrays, copies, strict=True):
                if copy.nbytes:
                    array.get(stream=self._stream, out=copy, blocking=False)
            self._stream.synchronize()
        return copies

    def wait(self) -> None:
        self.calls["waits"] += 1
        self._stream.synchronize()

    def for_mpi(self, array: Any) -> Any:
        return array

    def launch(self, kernel: Any, blocks: int, *args: Any) -> None:
        if blocks == 0:
            return
        self.calls["launches"] += 1
        with self._here(), cuda.gpus[self.device]:
            # sync=False: told of CuPy's stream, Numba would wait for it at every argument; ours is the same stream.
            converted = [cuda.as_cuda_array(arg, sync=False) if isinstance(arg, cupy.ndarray) else arg for arg in args]
            stream = _numba_stream(self.device, self._stream.ptr)
            with warnings.catch_warnings():  # few blocks are no mistake where there is little to do
                warnings.simplefilter("ignore", NumbaPerformanceWarning)
                configured = kernel[blocks, self.threads, stream]
            configured(*converted)

    def adopt(self, array: Any, call: str, name: str, stream: int | None) -> Any:
        device = cuda_device_of(array)
        if device is None:
            raise TypeError(
                f"{call}: expected {name} on a CUDA device, got a {type(array).__name__} that is not on one"
            )
        if device != self.device:
            raise ValueError(
                f"{call}: expected {name} on CUDA device {self.device}, as before, got it on device {device}"
            )
        with cupy.cuda.Device(self.device):
            self._stream = cupy.cuda.get_current_stream() if stream is None else _borrowed(stream)
        with self._here():
            return cupy.from_dlpack(array)


def _page_locked(like: Any) -> npt.NDArray[Any]:
    """Memory of the host that a device copies from and to by itself."""
    pinned: npt.NDArray[Any] = (cupyx.empty_pinned if like.nbytes else np.empty)(like.shape, like.dtype)
    return pinned


def _borrowed(pointer: int) -> Any:
    """A stream that another library made; 0 is the one that every device has."""
    return cupy.cuda.Stream.from_external(_Pointer(pointer)) if pointer else cupy.cuda.Stream.null


class _Pointer:
    """Speaks the protocol in which libraries lend each other streams."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


@functools.cache
def _numba_stream(device: int, pointer: int) -> Any:
    """Of the device, which must be the current one."""
    return cuda.external_stream(pointer) if pointer else cuda.default_stream()
