"""The hot loops: arrays in, arrays out, in interchangeable backends that agree to the bit.

``numpy`` is the slow, obvious oracle; ``native`` is C++17 (csrc/); ``numba`` needs no compiler at install time.
``load`` picks one by name, by ``SPARDL_BACKEND``, or by what is there. ``cuda`` is for arrays on a GPU, and for those
alone: it is loaded by name, or for such arrays.
"""

import functools
import importlib
import warnings
from typing import Any

from spardl import environment
from spardl.kernels.api import Kernels

__all__ = ["BACKENDS", "CUDA", "Kernels", "cuda_device_of", "load", "open_cuda", "resolve"]

BACKENDS = ("native", "numba", "numpy")  # for arrays in the host's memory
CUDA = "cuda"


def load(name: str = "auto", *, direct: bool = False) -> Kernels:
    """The backend called ``name``; ``"auto"`` asks ``SPARDL_BACKEND``, then prefers native to numba.

    ``direct``: see ``open_cuda``.
    """
    name = resolve(name)
    if name == "auto":
        return _best_available()
    if name not in (*BACKENDS, CUDA):
        raise ValueError(f"backend: expected one of {('auto', *BACKENDS, CUDA)}, got {name!r}")
    if name == CUDA:
        return open_cuda(0, direct=direct)
    try:
        return _load(name)
    except ImportError as error:
        raise ValueError(f"backend {name!r} is not available here: {error}. {_REMEDY[name]}") from error


def load_for_host(name: str = "auto") -> Kernels:
    """The same for gradients that go through the host wherever they come from: in place of a GPU's, the best there."""
    return _best_available() if resolve(name) == CUDA else load(name)


def resolve(name: str) -> str:
    """What ``SPARDL_BACKEND`` says if ``name`` is ``"auto"``."""
    return environment.BACKEND.get() if name == "auto" else name


_REMEDY = {
    "native": "Reinstall spardl with a C++17 compiler on the PATH, or use backend='numba'.",
    "numba": "Install numba, or use backend='numpy'.",
    "numpy": "Install numpy.",
    CUDA: "Install what the driver supports of `pip install 'spardl[cuda13]'` and `pip install 'spardl[cuda12]'`.",
}


def open_cuda(device: int, *, direct: bool = False) -> Kernels:
    """The cuda backend for one device. Not shared: it follows the stream of one reducer's gradients.

    ``direct``: messages stay in the device's memory, for an MPI that takes them there.
    """
    from spardl.kernels.cuda import open_device

    try:
        return open_device(device, direct)
    except ImportError as error:
        raise ValueError(f"backend {CUDA!r} is not available here: {error}. {_REMEDY[CUDA]}") from error


def cuda_device_of(array: Any) -> int | None:
    """The number of the GPU that an array of whatever library is on; None if it is on none."""
    if not hasattr(array, "__dlpack_device__"):
        return None
    kind, device = array.__dlpack_device__()
    return int(device) if kind in _ON_CUDA else None


_ON_CUDA = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


@functools.cache
def _load(name: str) -> Kernels:
    return importlib.import_module(f"spardl.kernels.{name}_backend").KERNELS  # type: ignore[no-any-return]


@functools.cache
def _best_available() -> Kernels:
    try:
        return _load("native")
    except ImportError as error:
        warnings.warn(
            f"spardl was installed without its compiled kernels ({error}); using numba, which compiles at first use. "
            + _REMEDY["native"].split(",")[0]
            + ".",
            RuntimeWarning,
            stacklevel=4,
        )
        return _load("numba")
