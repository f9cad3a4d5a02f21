"""The whole way from torch's tensors and back, on real ranks, with Numba's simulator for a GPU."""

from pathlib import Path

import pytest
from mpi.launcher import run

pytestmark = pytest.mark.launches


def test_ranks_with_and_without_a_gpu_train_to_the_same_bits(monkeypatch):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    run(3, Path(__file__).parent / "programs" / "mixed_training.py")
