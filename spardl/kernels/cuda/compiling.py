"""Compiles every kernel for given architectures on a machine without a device, and says what it would use there.

Numba makes PTX of it, with libNVVM; ``ptxas`` makes machine code of that, and knows registers and memory. Both come
with ``pip install nvidia-cuda-nvcc-cu12``.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from numba import config, types

from spardl.kernels.cuda import backend  # noqa: F401, for all kernels to be known
from spardl.kernels.cuda.jit import KERNELS, MOST_THREADS, numba_cuda

ARCHITECTURES = ((7, 0), (8, 0), (9, 0))
# Value and index types that kernels are compiled for; the others are mixtures of these.
TYPES = ((types.float32, types.int32), (types.float64, types.int64))


class Usage(NamedTuple):
    """What one kernel takes on one architecture."""

    kernel: str
    values: str
    architecture: str
    registers: int  # per thread
    shared: int  # bytes per block
    local: int  # bytes per thread: stack and registers that had to be spilled


def compile_all(architectures: Iterable[tuple[int, int]] = ARCHITECTURES) -> Iterator[Usage]:
    """Compiles everything; raises with the compiler's message where that fails."""
    for architecture in architectures:
        for value, index in TYPES:
            ptx = {name: to_ptx(*KERNELS[name], value, index, architecture) for name in KERNELS}
            yield from _assemble(ptx, str(value), architecture)


def to_ptx(function: Any, letters: str, value: Any, index: Any, architecture: tuple[int, int]) -> str:
    arrays = {"V": value, "I": index, "L": types.int64, "M": types.uint32, "W": types.uint64}
    arrays |= {"H": types.uint16, "F": types.float32}
    arrays["B"] = types.int32 if value == types.float32 else types.int64
    scalars = {"v": value, "q": types.int64}
    signature = tuple(scalars[letter] if letter in scalars else arrays[letter][::1] for letter in letters)
    # Numba asks the current device what to compile device functions for. Here is none.
    device = SimpleNamespace(compute_capability=architecture)
    asking = "numba.cuda.dispatcher.get_current_device"
    with (
        mock.patch.object(config, "FORCE_CUDA_CC", architecture),
        mock.patch(asking, return_value=device),
    ):
        ptx, _ = numba_cuda.compile_ptx(function, signature, cc=architecture)
    return str(ptx)


def _assemble(ptx: dict[str, str], value: str, architecture: tuple[int, int]) -> Iterator[Usage]:
    target = "sm_{}{}".format(*architecture)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ptx.items():
            source = Path(folder, f"{name}.ptx")
            source.write_text(text, encoding="utf-8")
            command = [str(find_ptxas()), "--verbose", f"--gpu-name={target}", "--output-file=/dev/null", str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                raise RuntimeError(f"ptxas cannot assemble {name} for {target}: {done.stderr.strip()}")
            used = {what: _number(pattern, done.stderr) for what, pattern in _PATTERNS.items()}
            yield Usage(name, value, target, used["registers"], used["shared"], used["stack"] + used["spilled"])


_PATTERNS = {
    "registers": r"Used (\d+) registers",
    "shared": r"(\d+) bytes smem",
    "stack": r"(\d+) bytes stack frame",
    "spilled": r"(\d+) bytes spill stores",
}


def _number(pattern: str, report: str) -> int:
    found = re.search(pattern, report)
    return int(found.group(1)) if found else 0


def find_ptxas() -> Path:
    """The one that was installed with the CUDA 12 compiler's wheel: the oldest architectures are gone from CUDA 13."""
    found = util.find_spec("nvidia.cuda_nvcc")
    places = list(found.submodule_search_locations or []) if found is not None else []
    for place in places:
        ptxas = Path(place, "bin", "ptxas")
        if ptxas.exists():
            return ptxas
    raise ImportError("ptxas not found: pip install nvidia-cuda-nvcc-cu12")


def blocks_per_processor(usage: Usage) -> int:
    """How many blocks fit on a multiprocessor with 64 Ki registers, 2048 threads and 64 KiB of shared memory."""
    registers = -(-usage.registers // 8) * 8 * MOST_THREADS
    shared = (64 << 10) // usage.shared if usage.shared else 32
    return min(2048 // MOST_THREADS, (64 << 10) // registers, shared)
