"""Types of the compiled kernels (csrc/); ``spardl.kernels.native_backend`` is the only caller."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]
_Bytes = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]

def simd() -> str: ...
def empty(size: int) -> _Bytes: ...
def concatenate(parts: Sequence[_Array]) -> _Array: ...
def accumulate(
    blocks: Sequence[int],
    grad: _Array,
    residual: _Array,
    out: _Array,
    bounds: npt.NDArray[np.int64],
    floors: _Array,
    starts: npt.NDArray[np.int64],
    indices: _Array,
    values: _Array,
) -> tuple[list[int], int]: ...
def accumulate_corrected(
    blocks: Sequence[int],
    grad: _Array,
    residual: _Array,
    out: _Array,
    bounds: npt.NDArray[np.int64],
    floors: _Array,
    starts: npt.NDArray[np.int64],
    indices: _Array,
    values: _Array,
    correction_indices: _Array,
    correction_values: _Array,
) -> tuple[list[int], int]: ...
def topk_dense(dense: _Array, k: int, base: int, wide: bool) -> tuple[_Array, _Array]: ...
def select(
    indices: _Array, values: _Array, over_indices: _Array, over_values: _Array, k: int, floor: float
) -> tuple[_Array, _Array, float, int, float]: ...
def split(indices: _Array, values: _Array, k: int) -> tuple[_Array, _Array, _Array, _Array]: ...
def add(indices_a: _Array, values_a: _Array, indices_b: _Array, values_b: _Array) -> tuple[_Array, _Array]: ...
def overlay(
    over_indices: _Array, over_values: _Array, dense: _Array, indices: _Array, values: _Array
) -> tuple[_Array, _Array]: ...
def scatter_add(dense: _Array, indices: _Array, values: _Array) -> None: ...
def overwrite_where(dense: _Array, wanted: _Array, indices: _Array, values: _Array) -> None: ...
def corrections(
    wanted: Sequence[_Array], received: Sequence[tuple[_Array, _Array]], sent: Sequence[tuple[_Array, _Array]]
) -> tuple[_Array, _Array]: ...
def add_where(dense: _Array, wanted: _Array, indices: _Array, values: _Array) -> None: ...
def pack(indices: _Array, base: int, bits: int) -> tuple[_Words, _Words]: ...
def unpack(low: _Words, high: _Words, count: int, base: int, bits: int, wide: bool, end: int) -> _Array: ...
def write_frame(
    vector: tuple[_Array, _Array], block: tuple[int, int], coding: str, dtype: int, value_coding: int
) -> _Bytes: ...
def write_message(
    vectors: Sequence[tuple[_Array, _Array]],
    blocks: Sequence[tuple[int, int]],
    coding: str,
    dtype: int,
    value_coding: int,
    front: int,
) -> _Bytes: ...
def read_message(message: _Bytes, expected: int, wide: bool) -> list[tuple[int, int, int, int, _Array, _Array]]: ...
def read_frames(frames: Sequence[_Bytes], wide: bool) -> list[tuple[int, int, int, int, _Array, _Array]]: ...
