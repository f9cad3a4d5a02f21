"""The cuda backend for tests that hold NumPy arrays: they go to the device, real or simulated, and come back."""

import numpy as np

from spardl.kernels import cuda_device_of
from spardl.kernels.cuda.backend import CudaKernels

HOSTS_OWN = {"accumulate": (0, 4, 5, 6)}  # which blocks; bounds, floors, starts


class OnDevice:
    """Kernels by name, called with NumPy arrays as the CPU's are."""

    def __init__(self, namespace):
        self.namespace, self.kernels = namespace, CudaKernels(namespace)

    def __getattr__(self, kernel):
        def call(*args):
            stay = HOSTS_OWN.get(kernel, ())
            moved = [arg if at in stay else self._there(arg) for at, arg in enumerate(args)]
            result = getattr(self.kernels, kernel)(*moved)
            for arg, copy in zip(args, moved, strict=True):
                if cuda_device_of(copy) is not None:
                    np.copyto(arg, self._back(copy))
            return self._back(result)

        return call

    def _there(self, tree):
        if isinstance(tree, np.ndarray):
            return self.namespace.to_device(tree)
        return type(tree)(map(self._there, tree)) if isinstance(tree, tuple | list) else tree

    def _back(self, tree):
        if cuda_device_of(tree) is not None:
            return np.array(self.namespace.to_host(tree)[0])
        if not isinstance(tree, tuple | list):
            return tree
        parts = list(map(self._back, tree))
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
