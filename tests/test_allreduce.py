"""SparseAllreduce on one rank: arguments, edges, checkpoints. What takes several ranks is in tests/mpi."""

import numpy as np
import pytest
from mpi4py import MPI

import spardl


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
        ({"teams": 2}, ValueError, r"teams to divide 1 ranks, i.e. one of \[1\], got 2"),
        ({"teams": 0}, ValueError, "teams"),
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


def test_environment_variables(monkeypatch):
    monkeypatch.setenv("SPARDL_TIMEOUT", "7")
    monkeypatch.setenv("SPARDL_BACKEND", "numpy")
    allreduce = build()
    assert (allreduce._timeout, allreduce._kernels.name) == (7.0, "numpy")
