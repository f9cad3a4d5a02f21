"""CuPy and Numba's CUDA are imported when a GPU is asked for, and not before; without them errors say what to do."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from spardl.torch import SparDL, buckets

NOTHING_OF_CUDA = """
import sys
import numpy as np
import spardl, spardl.torch, spardl.cli
from mpi4py import MPI
spardl.SparseAllreduce(MPI.COMM_SELF, 10, k=2).reduce(np.ones(10))
loaded = [name for name in sys.modules if name.partition(".")[0] in ("cupy", "cupyx") or "kernels.cuda" in name]
assert not loaded, loaded
"""
WITHOUT_CUPY = """
import sys
sys.modules["cupy"] = None
from spardl import kernels
try:
    kernels.load("cuda")
except ValueError as error:
    assert "backend 'cuda' is not available here" in str(error), error
    assert "pip install 'spardl[cuda13]'" in str(error), error
else:
    raise AssertionError("loaded")
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_nothing_of_cuda_is_imported_unless_asked_for():
    run(NOTHING_OF_CUDA)


def test_error_says_what_to_install():
    run(WITHOUT_CUPY)


def test_gradients_on_a_gpu_go_through_the_host_with_a_warning(monkeypatch):
    def missing(device):
        raise ValueError("backend 'cuda' is not available here: no CuPy")

    monkeypatch.setattr(buckets.kernels, "open_cuda", missing)
    on_gpu, on_cpu = (SimpleNamespace(device=torch.device(name)) for name in ("cuda:1", "cpu"))
    reducer = SimpleNamespace(algorithm="spardl")
    builder = buckets.BucketBuilder({}, SparDL(density=0.1), None, None, 1.0)
    with pytest.warns(RuntimeWarning, match="gradients go through the host: backend 'cuda' is not available"):
        assert builder._gpu([on_gpu], reducer) is None
    assert builder._gpu([on_cpu], reducer) is None
    assert builder._gpu([on_gpu, on_cpu], reducer) is None
    monkeypatch.setattr(buckets.kernels, "open_cuda", lambda device: None)
    assert builder._gpu([on_gpu], reducer) == on_gpu.device
    assert builder._gpu([on_gpu], SimpleNamespace(algorithm="dense_ring")) is None
    kept_off = buckets.BucketBuilder({}, SparDL(density=0.1, backend="native"), None, None, 1.0)
    assert kept_off._gpu([on_gpu], reducer) is None
