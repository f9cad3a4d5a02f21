"""What code that does not care where arrays live asks for, on a device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import Indices, Values
from spardl.kernels.cuda import elementwise, scatter
from spardl.kernels.cuda.namespace import Namespace


class DeviceArrays:
    """See ``spardl.kernels.api.Arrays``."""

    def __init__(self, namespace: Namespace) -> None:
        self._on = namespace
        self.empty, self.zeros = namespace.empty, namespace.zeros
        self.lasting = namespace.zeros
        self.to_host = namespace.to_host
        self.adopt = namespace.adopt

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
