"""How much each model counts: weight matrices for a given pattern of messages.

``sends[i, j]`` says whether rank i sends to rank j; its diagonal is False. Everyone counts its own model as well.
"""

import numpy as np
import numpy.typing as npt

Sends = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float64]

_CLOSE = 1e-12  # a column that sums to 1 so closely does
_MOST_STEPS = 1000  # graphs of 512 ranks made to be difficult took 200, others fewer than 20


def metropolis(sends: Sends) -> Weights:
    """Doubly stochastic: Metropolis's weights where the graph is undirected, else those of Sinkhorn."""
    if not np.array_equal(sends, sends.T):
        return _sinkhorn(sends)
    degrees = sends.sum(axis=1)
    weights = np.where(sends, 1 / (1 + np.maximum.outer(degrees, degrees)), 0.0)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


def uniform(sends: Sends) -> Weights:
    """All that a rank has count the same, as in Hop's paper: doubly stochastic on regular graphs only."""
    pattern = _pattern(sends)
    pattern /= pattern.sum(axis=1, keepdims=True)
    return pattern


RULES = {"metropolis": metropolis, "uniform": uniform}


def _sinkhorn(sends: Sends) -> Weights:
    """Scales rows and columns of A + I until both sum to 1: what Sinkhorn's iteration converges to.

    Every edge lies on a cycle, since the graph is strongly connected; so there is a limit, and no edge vanishes. The
    logarithms of the columns' scales minimise a convex function. Newton's method finds them in a few steps, where
    Sinkhorn's iteration takes hundreds of thousands on a long ring.
    """
    pattern = _pattern(sends)
    scales = np.zeros(len(pattern))
    for _ in range(_MOST_STEPS):
        weights = pattern * np.exp(scales)
        weights /= weights.sum(axis=1, keepdims=True)
        columns = weights.sum(axis=0)
        if np.abs(columns - 1).max() < _CLOSE and np.array_equal(weights > 0, pattern > 0):
            return weights
        # Scaling all columns alike changes nothing: the last term makes the matrix regular in spite of that.
        hessian = np.diag(columns) - weights.T @ weights + 1 / len(pattern)
        newton = np.linalg.solve(hessian, 1 - columns)
        scales += newton / max(1, np.abs(newton).max())  # far from the minimum a whole step would overshoot
    raise ValueError('graph: found no doubly stochastic weights in double precision; use weights="uniform"')


def _pattern(sends: Sends) -> Weights:
    return sends.T + np.eye(len(sends))
