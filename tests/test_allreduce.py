"""SparseAllreduce on one rank: arguments, edges, checkpoints. What takes several ranks is in tests/mpi."""

import numpy as np
import pytest
from mpi4py import MPI

import spardl
from spardl.allreduce import ALGORITHMS


def build(size=100, comm=MPI.COMM_SELF, **arguments):
    budget = {} if {"k", "density"} & set(arguments) else {"k": 10}
    return spardl.SparseAllreduce(comm, size, **budget | arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"k": 1, "density": 0.5}, ValueError, "exactly one of k and density, got k=1 and density=0.5"),
        ({"k": None}, ValueError, "exactly one of k and density"),
        ({"k": -1}, ValueError, "k >= 0, got -1"),
        ({"k": 2.5}, TypeError, "k to be an integer, got 2.5"),
        ({"size": -5}, ValueError, "size >= 0, got -5"),
        ({"size": 1e6}, TypeError, "size to be an integer"),
        ({"density": 1.5}, ValueError, "density between 0 and 1, got 1.5"),
        ({"density": float("nan")}, ValueError, "density between 0 and 1"),
        ({"algorithm": "magic"}, ValueError, "algorithm in .*'spardl'.*, got 'magic'"),
        ({"sag": "x"}, ValueError, "sag in .*, got 'x'"),
        ({"residual": "none"}, ValueError, "residual in .*, got 'none'"),
        ({"wire": "zip"}, ValueError, "wire in .*, got 'zip'"),
        ({"wire_dtype": "int8"}, ValueError, "wire_dtype in .*, got 'int8'"),
        ({"teams": 2}, ValueError, r"teams to divide 1 ranks, i.e. one of \[1\], or .auto., got 2"),
        ({"teams": 0}, ValueError, "teams"),
        ({"algorithm": "gtopk", "teams": 2}, ValueError, "algorithm='gtopk' has no teams, got teams=2"),
        ({"algorithm": "gtopk", "sag": "b"}, ValueError, "algorithm='gtopk' has no teams, got teams=1 and sag='b'"),
        ({"algorithm": "topk_a", "residual": "local"}, ValueError, "algorithm='topk_a' loses nothing"),
        ({"algorithm": "dense_ring", "wire_dtype": "bf16"}, ValueError, "algorithm='dense_ring' rounds nothing"),
        ({"algorithm": "dense_mpi", "comm": (MPI.COMM_SELF, [0])}, ValueError, "needs a whole communicator"),
        ({"backend": "gpu"}, ValueError, "backend: expected one of .*, got 'gpu'"),
        ({"comm": "world"}, TypeError, "mpi4py communicator"),
        ({"comm": (MPI.COMM_SELF, [0, 0])}, ValueError, "distinct ranks"),
    ],
)
def test_wrong_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        build(**arguments)


@pytest.mark.parametrize(("n", "k"), [(0, 0), (0, 3), (1, 0), (1, 1), (5, 9), (1000, 1)])
def test_edges_on_one_rank(n, k):
    allreduce = build(n, k=k)
    grad = np.random.default_rng(n).standard_normal(n)
    result = allreduce.reduce(grad)
    assert result.nnz == min(n, k)
    np.testing.assert_array_equal(result.to_dense() + allreduce.residual, grad)
    assert (allreduce.traffic.rounds, allreduce.traffic.bytes_sent) == (0, 0)


@pytest.mark.parametrize(("density", "k"), [(0.0, 0), (0.001, 1), (0.014, 1), (0.016, 2), (1.0, 100)])
def test_density(density, k):
    assert build(density=density).k == k


def test_the_gradient_is_left_alone_and_the_residual_cannot_be_written():
    allreduce = build()
    grad = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    kept = grad.copy()
    assert not allreduce.residual.any()
    allreduce.reduce(grad)
    np.testing.assert_array_equal(grad, kept)
    with pytest.raises(ValueError, match="read-only"):
        allreduce.residual[0] = 1


def test_state_of_another_setup_is_refused():
    allreduce = build()
    allreduce.reduce(np.ones(100))
    state = allreduce.state_dict()
    with pytest.raises(ValueError, match="expected config"):
        build(k=11).load_state_dict(state)
    with pytest.raises(ValueError, match="residual of shape"):
        build().load_state_dict(state | {"residual": np.zeros(3)})
    with pytest.raises(ValueError, match="expected ranks"):
        build().load_state_dict(state | {"ranks": 2})


def test_state_before_the_first_reduce():
    fresh, used = build(), build()
    used.reduce(np.ones(100, np.float32))
    used.load_state_dict(fresh.state_dict())
    assert not used.residual.any()
    used.reduce(np.ones(100, np.float64))  # the dtype is open again


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_state_of_every_algorithm(algorithm):
    straight, resumed = build(1000, algorithm=algorithm), build(1000, algorithm=algorithm)
    first, second = gradients(2)
    straight.reduce(first)
    resumed.load_state_dict(straight.state_dict())
    results = [allreduce.reduce(second).to_dense() for allreduce in (straight, resumed)]
    assert results[0].tobytes() == results[1].tobytes()
    assert straight.residual.tobytes() == resumed.residual.tobytes()
    other = "spardl" if algorithm != "spardl" else "gtopk"
    with pytest.raises(ValueError, match="expected config"):
        build(1000, algorithm=other).load_state_dict(straight.state_dict())


def test_environment_variables(monkeypatch):
    monkeypatch.setenv("SPARDL_TIMEOUT", "7")
    monkeypatch.setenv("SPARDL_BACKEND", "numpy")
    allreduce = build()
    assert (allreduce._timeout, allreduce._kernels.name) == (7.0, "numpy")


def gradients(count, n=1000, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n).astype(np.float32) for _ in range(count)]


def test_undo_takes_exactly_one_reduce_back():
    taken_back, never_done = build(1000), build(1000)
    first, second, third = gradients(3)
    for allreduce in (taken_back, never_done):
        allreduce.reduce(first)
    taken_back.reduce(second)
    taken_back.undo()
    state, expected = taken_back.state_dict(), never_done.state_dict()
    assert state["width"] == expected["width"]
    for name in ("residual", "thresholds"):
        np.testing.assert_array_equal(state[name], expected[name])
    results = [allreduce.reduce(third) for allreduce in (taken_back, never_done)]
    np.testing.assert_array_equal(results[0].indices, results[1].indices)
    np.testing.assert_array_equal(taken_back.residual, never_done.residual)
    taken_back.undo()
    with pytest.raises(RuntimeError, match="no reduce to take back"):
        taken_back.undo()


def test_retune_changes_k_and_loses_nothing():
    allreduce = build(1000, density=0.25)
    handed_in, results = np.zeros(1000), np.zeros(1000)
    for density, k, grad in zip([0.25, 0.25, 0.05, 0.01, 0.5], [250, 250, 50, 10, 500], gradients(5), strict=True):
        allreduce.retune(density=density)
        result = allreduce.reduce(np.round(64 * grad))
        assert allreduce.k == result.nnz == k
        handed_in += np.round(64 * grad)
        results += result.to_dense()
    np.testing.assert_array_equal(results + allreduce.residual, handed_in)
    with pytest.raises(ValueError, match="exactly one of k and density"):
        allreduce.retune()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_start_from_a_residual(algorithm):
    allreduce = build(1000, algorithm=algorithm)
    grad, owed = gradients(2)
    allreduce.start_from(owed)
    np.testing.assert_array_equal(allreduce.residual, owed)
    result = allreduce.reduce(grad)
    np.testing.assert_array_equal(result.to_dense() + allreduce.residual, grad + owed)
    with pytest.raises(ValueError, match=r"start_from: expected residual of shape \(1000,\), got \(5,\)"):
        allreduce.start_from(np.zeros(5, np.float32))


def test_dense_on_one_rank():
    dense = build(algorithm="dense_ring")
    (grad,) = gradients(1, 100)
    result = dense.reduce(grad)
    np.testing.assert_array_equal(result.values, grad)
    np.testing.assert_array_equal(result.indices, np.arange(100, dtype=np.int32), strict=True)
    grad[7] = np.inf
    with pytest.raises(spardl.NonFiniteGradient, match="rank 0 at index 7"):
        dense.reduce(grad)
    dense.reduce(np.full(100, 1e30, np.float32))  # large is not infinite, although its square is
