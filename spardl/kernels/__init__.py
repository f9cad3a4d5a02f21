"""The hot loops: arrays in, arrays out, in interchangeable backends that agree to the bit.

``numpy`` is the slow, obvious oracle; ``native`` is C++17 (csrc/); ``numba`` needs no compiler at install time.
``load`` picks one by name, by ``SPARDL_BACKEND``, or by what is there.
"""

import functools
import importlib
import warnings

from spardl import environment
from spardl.kernels.api import Kernels

__all__ = ["BACKENDS", "Kernels", "load"]

BACKENDS = ("native", "numba", "numpy")


def load(name: str = "auto") -> Kernels:
    """The backend called ``name``; ``"auto"`` asks ``SPARDL_BACKEND``, then prefers native to numba."""
    if name == "auto":
        name = environment.BACKEND.get()
    if name == "auto":
        return _best_available()
    if name not in BACKENDS:
        raise ValueError(f"backend: expected one of {('auto', *BACKENDS)}, got {name!r}")
    try:
        return _load(name)
    except ImportError as error:
        raise ValueError(f"backend {name!r} is not available here: {error}. {_REMEDY[name]}") from error


_REMEDY = {
    "native": "Reinstall spardl with a C++17 compiler on the PATH, or use backend='numba'.",
    "numba": "Install numba, or use backend='numpy'.",
    "numpy": "Install numpy.",
}


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
