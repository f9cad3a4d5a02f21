"""What the programs share. Gradients depend on rank and step only, so that every rank knows all of them."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD


def gradient(rank, step, n, dtype="float32"):
    return np.random.default_rng([rank, step]).standard_normal(n).astype(dtype)


def integer_gradient(rank, step, n, scale, dtype="float64"):
    return (np.random.default_rng([rank, step]).integers(-9, 10, n) * scale).astype(dtype)


def assert_law(comm, grad, old_residual, result, residual):
    """Exactly, so hand in integers that stay integers."""
    owed, left = np.empty_like(grad), np.empty_like(grad)
    comm.Allreduce(grad + old_residual, owed)
    comm.Allreduce(np.ascontiguousarray(residual), left)
    np.testing.assert_array_equal(owed, result.to_dense() + left)


def same_everywhere(comm, data):
    """Whether all ranks hold the same bytes."""
    return len(set(comm.allgather(bytes(data)))) == 1


def state_bytes(allreduce):
    state = allreduce.state_dict()
    return [
        (name, value.tobytes() if isinstance(value, np.ndarray) else repr(value))
        for name, value in sorted(state.items())
    ]
