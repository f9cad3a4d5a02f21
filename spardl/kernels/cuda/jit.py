"""How kernels are written down: ``@kernel("VVq…")`` says what its arguments are, one letter each.

Kernels are compiled for the types they are called with; the letters are for those who compile them without a device
(``compiling.py``). Inside kernels ``cuda`` has to come from here. In Numba's simulator that is not the module: the
simulator would put another in its place while a kernel runs, file by file, which goes wrong for a device function in a
file of its own.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numba
import numba.cuda

numba_cuda: Any = numba.cuda  # untyped
SIMULATED = bool(getattr(numba.config, "ENABLE_CUDASIM", False))

# Shared memory is laid out for so many threads per block, and for digits of so many bits in a radix select.
MOST_THREADS = 256
MOST_DIGIT_BITS = 11
MOST_DIGITS = 1 << MOST_DIGIT_BITS
# A tile is what one block of threads marks: a word of so many bits per thread.
WORD = 32


class _InsideKernel:
    """What ``cuda`` means in the kernel that the simulator is running."""

    def __getattr__(self, name: str) -> Any:
        return getattr(simulator._get_kernel_context(), name)


if SIMULATED:
    simulator: Any = importlib.import_module("numba.cuda.simulator.kernel")

cuda: Any = _InsideKernel() if SIMULATED else numba_cuda

# Name → (Python function, letters). V values, I indices, B values as integers of their size, L int64, H uint16,
# M uint32, W uint64 and F float32 arrays; v one value, q one int64.
KERNELS: dict[str, tuple[Callable[..., None], str]] = {}


def kernel(letters: str) -> Callable[[Callable[..., None]], Any]:
    """Marks a function that the host launches."""

    def mark(function: Callable[..., None]) -> Any:
        KERNELS[function.__name__] = (function, letters)
        return numba_cuda.jit(function)

    return mark


def device(function: Callable[..., Any]) -> Any:
    """Marks a function that kernels call."""
    return numba_cuda.jit(device=True)(function)
