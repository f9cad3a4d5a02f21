"""What code that does not care where arrays live asks for, on a device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import Indices, Messages, Stored, Values
from spardl.kernels.checks import OUT_OF_ORDER
from spardl.kernels.cuda import elementwise, half, scatter
from spardl.kernels.cuda.messages import DirectMessages, StagedMessages
from spardl.kernels.cuda.namespace import DeviceArray, Namespace
from spardl.kernels.half import LARGEST


class DeviceArrays:
    """See ``spardl.kernels.api.Arrays``."""

    def __init__(self, namespace: Namespace, direct: bool = False) -> None:
        self._on = namespace
        self.empty, self.zeros = namespace.empty, namespace.zeros
        self.lasting = namespace.zeros
        self.to_host = namespace.to_host
        self.adopt = namespace.adopt
        self.messages: Messages = DirectMessages(namespace) if direct else StagedMessages(namespace)

    def concatenate(self, parts: Sequence[Any]) -> Any:
        return self._on.concatenate(list(parts))

    def from_host(self, array: npt.NDArray[Any]) -> Any:
        return self._on.to_device(array)

    def assign(self, dense: Values, host: npt.NDArray[Any]) -> None:
        self._on.to_device(host, dense)

    def divide(self, values: Values, divisor: int) -> Values:
        quotients: Values = self._on.empty(len(values), values.dtype)
        self._on.launch(elementwise.divide, self._blocks(values), values, values.dtype.type(divisor), quotients)
        return quotients

    def subtract(self, values: Values, others: Values) -> Values:
        differences: Values = self._on.empty(len(values), values.dtype)
        self._on.launch(elementwise.subtract, self._blocks(values), values, others, differences)
        return differences

    def shift(self, indices: Indices, by: int, dtype: npt.DTypeLike) -> Indices:
        shifted: Indices = self._on.empty(len(indices), dtype)
        self._on.launch(elementwise.shift, self._blocks(indices), indices, by, shifted)
        return shifted

    def place_many(self, blocks: Sequence[Stored], dtype: npt.DTypeLike) -> list[Indices]:
        """Waits to hear whether all are in order."""
        bad = self._on.zeros(1, np.int64)
        placed: list[Indices] = [self._on.empty(len(stored), dtype) for stored, _, _ in blocks]
        for (stored, base, length), indices in zip(blocks, placed, strict=True):
            self._on.launch(elementwise.place, self._blocks(stored), stored, base, length, indices, bad)
        if self._on.to_host(bad)[0][0]:
            raise ValueError(OUT_OF_ORDER)
        return placed

    def narrow(self, values: Values, coding: str) -> DeviceArray:
        on, blocks = self._on, self._blocks(values)
        single, codes = on.empty(len(values), np.float32), on.empty(len(values), np.uint16)
        on.launch(half.to_single, blocks, values, values.dtype.type(LARGEST[coding]), single)
        on.launch(_NARROW[coding], blocks, single.view(np.uint32), codes)
        return codes

    def widen(self, codes: DeviceArray, coding: str, dtype: npt.DTypeLike) -> Values:
        on, blocks = self._on, self._blocks(codes)
        single: Values = on.empty(len(codes), np.float32)
        on.launch(_WIDEN[coding], blocks, codes, single.view(np.uint32))
        if np.dtype(dtype) == single.dtype:
            return single
        wide: Values = on.empty(len(codes), dtype)
        on.launch(half.from_single, blocks, single, wide)
        return wide

    def all_finite(self, values: Values) -> bool:
        bad, infinity = self._on.zeros(1, np.int64), values.dtype.type(np.inf)
        self._on.launch(elementwise.find_non_finite, self._blocks(values), values, infinity, bad)
        return bool(self._on.to_host(bad)[0][0] == 0)

    def count_nonzero(self, values: Values) -> int:
        count = self._on.zeros(1, np.int64)
        self._on.launch(elementwise.count_non_zero, self._blocks(values), values, count)
        return int(self._on.to_host(count)[0][0])

    def clear_at(self, dense: Values, indices: Indices) -> None:
        self._on.launch(scatter.clear_at, self._blocks(indices), dense, indices)

    def write_mean(self, dense: Values, indices: Indices, values: Values, ranks: int, scale: float) -> None:
        kind = values.dtype.type
        self._on.fill_with_zeros(dense)
        self._on.launch(scatter.write_mean_at, self._blocks(indices), dense, indices, values, kind(ranks), kind(scale))

    def _blocks(self, array: Any) -> int:
        return -(-len(array) // self._on.threads)


_NARROW = {"bf16": half.narrow_to_bf16, "fp16": half.narrow_to_fp16}
_WIDEN = {"bf16": half.widen_from_bf16, "fp16": half.widen_from_fp16}
