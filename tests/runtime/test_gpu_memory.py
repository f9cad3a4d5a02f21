"""Whether MPI is asked, and believed, about a GPU's memory."""

import pytest

from spardl.runtime import gpu_memory


@pytest.mark.parametrize(("mpi_can", "wish", "direct"), [
    (True, "", True), (False, "", False), (True, "auto", True), (True, "host", False), (False, "direct", True)
])  # fmt: skip
def test_as_told_or_as_mpi_can(monkeypatch, mpi_can, wish, direct):
    monkeypatch.setenv("SPARDL_GPU_MESSAGES", wish)
    monkeypatch.setattr(gpu_memory, "mpi_takes", lambda questions: mpi_can and questions == gpu_memory.CUDA)
    assert gpu_memory.send_directly() == direct


def test_a_wrong_wish_is_refused(monkeypatch):
    monkeypatch.setenv("SPARDL_GPU_MESSAGES", "maybe")
    with pytest.raises(ValueError, match=r"SPARDL_GPU_MESSAGES: expected one of .* got 'maybe'"):
        gpu_memory.send_directly()


def test_a_library_is_asked_by_its_functions(monkeypatch):
    monkeypatch.setattr(gpu_memory.launch, "library_path", lambda: "")  # this process: it has C's functions
    assert gpu_memory.mpi_takes(("no_such_function", "getpid"))
    assert not gpu_memory.mpi_takes(("no_such_function",))
    monkeypatch.setattr(gpu_memory.launch, "library_path", lambda: "no/such/library.so")
    assert not gpu_memory.mpi_takes(("getpid",))
