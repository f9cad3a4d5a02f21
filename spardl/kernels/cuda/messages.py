"""Messages of entries that are on a device: through page-locked memory of the host, or as they are.

The second is for an MPI that reads and writes a GPU's memory. It does so outside the stream, so the stream is waited
for before MPI is told of memory: that what is to be sent is there, and that nothing uses what will be overwritten.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.cuda.namespace import DeviceArray, Namespace
from spardl.kernels.cuda.segments import begins_of
from spardl.kernels.memory import HostMessages

HostBytes = npt.NDArray[np.uint8]
_FRONT = 1024  # bytes fetched of every message: its envelope and table, mostly, and a first frame's header


class StagedMessages(HostMessages):
    """See ``spardl.kernels.api.Messages``: in the host's memory, with copies from and to the device."""

    def __init__(self, namespace: Namespace) -> None:
        self._on = namespace

    def load(self, *arrays: DeviceArray) -> Sequence[npt.NDArray[Any]]:
        return self._on.to_host(*arrays)

    def unload(self, frames: Sequence[HostBytes]) -> Sequence[DeviceArray]:
        """In one copy. Frames are padded, so that each begins at a multiple of eight."""
        there = self._on.to_device(np.concatenate(frames))
        lengths = [len(frame) for frame in frames]
        return [there[begin : begin + length] for begin, length in zip(begins_of(lengths), lengths, strict=True)]


class DeviceBytes:
    """Bytes on a device, of which the first may be known on the host too."""

    __slots__ = ("_on", "array", "front")

    def __init__(self, namespace: Namespace, array: DeviceArray, front: HostBytes) -> None:
        self._on, self.array, self.front = namespace, array, front

    @property
    def nbytes(self) -> int:
        return len(self.array)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, part: slice) -> "DeviceBytes":
        return DeviceBytes(self._on, self.array[part], self.front[part])

    def fetch_fronts(self, messages: Sequence["DeviceBytes"], count: int) -> list[HostBytes]:
        """See ``spardl.effects.fronts``."""
        unknown = [message for message in messages if len(message.front) < min(count, len(message))]
        if unknown:
            fetched = self._on.to_host(*(message.array[:count] for message in unknown))
            for message, front in zip(unknown, fetched, strict=True):
                message.front = front
        return [message.front[:count] for message in messages]


class DirectMessages:
    """See ``spardl.kernels.api.Messages``: in the device's memory."""

    def __init__(self, namespace: Namespace) -> None:
        self._on = namespace

    def load(self, *arrays: DeviceArray) -> Sequence[DeviceArray]:
        return arrays

    def unload(self, frames: Sequence[DeviceBytes]) -> Sequence[DeviceArray]:
        return [frame.array for frame in frames]

    def frame(self, header: HostBytes, parts: Sequence[DeviceArray]) -> DeviceBytes:
        on = self._on
        ends = np.cumsum([len(header), *(-(-part.nbytes // 8) * 8 for part in parts)]).tolist()
        whole = on.empty(ends[-1], np.uint8)
        on.to_device(header, whole[: len(header)])
        for begin, end, part in zip(ends, ends[1:], parts, strict=False):
            on.copy(part.view(np.uint8), whole[begin : begin + part.nbytes])
            on.fill_with_zeros(whole[begin + part.nbytes : end])
        return DeviceBytes(on, whole, header)

    def seal(self, parts: Sequence[DeviceBytes | HostBytes]) -> DeviceArray:
        on, at = self._on, 0
        whole = on.empty(sum(map(len, parts)), np.uint8)
        for part in _uploaded_together(parts):
            room = whole[at : at + len(part)]
            if isinstance(part, DeviceBytes):
                on.copy(part.array, room)
            else:
                on.to_device(part, room)
            at += len(part)
        on.wait()
        return whole

    def inbox(self, count: int) -> DeviceArray:
        room = self._on.empty(count, np.uint8)
        self._on.wait()  # for what the memory was used for before
        return room

    def handle(self, message: DeviceArray) -> Any:
        return self._on.for_mpi(message)

    def opened(self, message: DeviceArray | DeviceBytes) -> DeviceBytes:
        if isinstance(message, DeviceBytes):
            return message
        return DeviceBytes(self._on, message, self._on.to_host(message[:_FRONT])[0])


def _uploaded_together(parts: Sequence[DeviceBytes | HostBytes]) -> Iterator[DeviceBytes | HostBytes]:
    """Parts of the host's that follow one another, as one: a copy to the device costs as much for few bytes."""
    for on_host, some in groupby(parts, lambda part: isinstance(part, np.ndarray)):
        if on_host:
            yield np.concatenate(list(some))
        else:
            yield from some
