"""The whole way from torch's tensors and back, on real ranks, with Numba's simulator for a GPU."""

import pytest
from mpi import launcher

pytestmark = pytest.mark.launches


def test_ranks_with_and_without_a_gpu_train_to_the_same_bits(monkeypatch):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setattr(launcher, "PROGRAMS", launcher.PROGRAMS.parents[1] / "gpu" / "programs")
    launcher.run(3, "mixed_training.py")
