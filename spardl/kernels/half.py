"""Values in 16 bits, on the host: ``"bf16"``, the upper half of a float32, and ``"fp16"``, IEEE's."""

from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = {"fp16": float(np.finfo(np.float16).max), "bf16": float(np.uint32(0x7F7F0000).view(np.float32))}


def narrow(values: npt.NDArray[Any], coding: str) -> npt.NDArray[np.uint16]:
    """Nearest 16-bit number, ties to even; what would overflow becomes the largest finite one."""
    largest = LARGEST[coding]
    single = np.clip(values, -largest, largest).astype(np.float32, copy=False)
    if coding == "fp16":
        halves: npt.NDArray[np.uint16] = single.astype(np.float16).view(np.uint16)
        return halves
    bits = single.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: npt.NDArray[np.uint16] = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    return rounded


def widen(codes: npt.NDArray[np.uint16], coding: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The way back, exact."""
    if coding == "fp16":
        return codes.view(np.float16).astype(dtype)
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(dtype, copy=False)
