"""SparseAllreduce with gradients on a (simulated) GPU: what it takes, what it refuses and how it says so."""

import numpy as np
import pytest
import torch
from mpi4py import MPI

import spardl.torch as spt
from spardl import SparseAllreduce, kernels
from spardl.kernels.cuda.simulated import SimulatedArray, SimulatedNamespace

N, K = 40, 6


def build(**options):
    return SparseAllreduce(MPI.COMM_SELF, N, k=K, **options)


def gradient(seed=0):
    return np.random.default_rng(seed).standard_normal(N).astype(np.float32)


def on_gpu(grad, device=0):
    return SimulatedArray(grad.copy(), device)


def host(result):
    return [array.tobytes() for array in SimulatedNamespace().to_host(result.indices, result.values)]


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_first_gradient_decides_where(backend):
    ours, theirs = build(backend=backend), build(backend="numpy")
    for seed in range(3):
        result, expected = ours.reduce(on_gpu(gradient(seed))), theirs.reduce(gradient(seed))
        assert host(result) == [expected.indices.tobytes(), expected.values.tobytes()]
        assert ours.residual.tobytes() == theirs.residual.tobytes()
    assert ours._kernels.name == "cuda"


def test_second_gpu():
    reducer = build()
    assert reducer.reduce(on_gpu(gradient(), device=1)).values.device == 1
    with pytest.raises(ValueError, match="expected grad on CUDA device 1, as before, got it on device 0"):
        reducer.reduce(on_gpu(gradient(), device=0))


def test_gradients_do_not_change_sides():
    here, there = build(), build()
    here.reduce(gradient())
    there.reduce(on_gpu(gradient()))
    before = there.residual.copy()
    with pytest.raises(TypeError, match="reduce: expected grad to be a numpy array, got SimulatedArray"):
        here.reduce(on_gpu(gradient()))
    with pytest.raises(TypeError, match=r"reduce: expected grad on a CUDA device .*, got a ndarray"):
        there.reduce(gradient())
    assert there.residual.tobytes() == before.tobytes()


def test_a_backend_that_was_asked_for_is_kept(monkeypatch):
    with pytest.raises(TypeError, match="expected grad to be a numpy array"):
        build(backend="native").reduce(on_gpu(gradient()))
    monkeypatch.setenv("SPARDL_BACKEND", "numpy")
    with pytest.raises(TypeError, match="expected grad to be a numpy array"):
        build().reduce(on_gpu(gradient()))


def test_bad_gradients_are_refused_as_on_the_host():
    reducer = build(backend="cuda")
    strided = SimulatedArray(np.zeros(2 * N, np.float32)[::2])
    with pytest.raises(ValueError, match="expected a contiguous grad, got strides"):
        reducer.reduce(strided)
    with pytest.raises(ValueError, match=r"expected grad of shape \(40,\), got \(39,\)"):
        reducer.reduce(on_gpu(gradient()[1:]))
    with pytest.raises(TypeError, match="expected grad of dtype float32 or float64, got int64"):
        reducer.reduce(SimulatedArray(np.zeros(N, np.int64)))
    bad = gradient()
    bad[7] = np.inf
    with pytest.raises(ValueError, match="non-finite gradient on rank 0 at index 7: gradient inf, residual 0"):
        reducer.reduce(on_gpu(bad))


def test_algorithms_that_only_know_the_host():
    with pytest.raises(ValueError, match="backend='cuda' knows algorithm='spardl' only, got 'topk_a'"):
        build(backend="cuda", algorithm="topk_a")
    with pytest.raises(TypeError, match="expected grad to be a numpy array"):
        build(algorithm="topk_a").reduce(on_gpu(gradient()))


def test_residual_and_checkpoint_go_to_the_gpu():
    owed = gradient(9)
    first, second = build(), build()
    first.start_from(owed)
    first.reduce(on_gpu(gradient()))
    second.start_from(owed)
    expected = second.reduce(gradient())
    assert first.residual.tobytes() == second.residual.tobytes()
    third = build()
    third.load_state_dict(first.state_dict())
    assert host(third.reduce(on_gpu(gradient(1)))) == host(first.reduce(on_gpu(gradient(1))))
    assert expected.nnz == K


def test_tensors_come_without_a_copy_and_means_are_written_in_place():
    reducer = build(backend="cuda")
    tensor = torch.from_numpy(gradient())
    result = reducer.reduce(tensor)
    with pytest.raises(TypeError, match="on a GPU"):
        result.to_dense()
    reducer.write_mean(result, tensor, scale=0.5)
    indices, values = SimulatedNamespace().to_host(result.indices, result.values)
    expected = np.zeros(N, np.float32)
    expected[indices] = values / np.float32(1) * np.float32(0.5)
    assert tensor.numpy().tobytes() == expected.tobytes()


def test_load_gives_everyone_their_own():
    assert kernels.load("cuda") is not kernels.load("cuda")


@pytest.mark.parametrize(
    ("sync", "message"),
    [
        (spt.SparDL(density=0.1, backend="cuda", momentum=0.9), "momentum correction runs on the host"),
        (spt.SparDL(density=0.1, backend="cuda"), "one device, got them on cpu and meta"),
    ],
)
def test_training_that_a_gpu_cannot_do_is_refused_at_the_door(sync, message):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=message):
        spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF)


def test_rna_goes_through_the_host():
    model = torch.nn.Linear(20, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    sync = spt.RNA(spt.SparDL(density=0.1, backend="cuda"))
    with spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF) as handle:
        model(torch.ones(3, 20)).sum().backward()
        optimizer.step()
    assert handle.stats.steps == 1
    assert not torch.equal(model.weight, before)
