"""Kernels for gradients on a GPU: Numba CUDA for the kernels, CuPy for memory, copies, streams and running sums.

Nothing here is imported until someone asks for the backend. With ``NUMBA_ENABLE_CUDASIM=1`` in the environment it runs
in Numba's simulator, without a GPU and without CuPy: for tests, not for work.
"""

import importlib

from spardl.kernels.api import Kernels


def open_device(device: int, direct: bool = False) -> Kernels:
    """Kernels for one device. Raises ImportError if something is not installed, ValueError if there is no device."""
    from spardl.kernels.cuda.backend import CudaKernels
    from spardl.kernels.cuda.jit import SIMULATED

    if SIMULATED:
        from spardl.kernels.cuda.simulated import SimulatedNamespace

        return CudaKernels(SimulatedNamespace(device=device), direct)
    importlib.import_module("numba_cuda")  # the CUDA that comes with Numba itself is older and compiles less
    from spardl.kernels.cuda.with_cupy import CupyNamespace, require_device

    require_device(device)
    return CudaKernels(CupyNamespace(device), direct)
