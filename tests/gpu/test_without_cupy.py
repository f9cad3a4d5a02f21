"""CuPy and Numba's CUDA are imported when a GPU is asked for, and not before; without them errors say what to do."""

import subprocess
import sys

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
