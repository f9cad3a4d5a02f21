"""A straight line through times that span five orders of magnitude and have outliers upwards."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spardl.cost.profile import Line

Floats = npt.NDArray[np.float64]
_ROUNDS = 30
_TUNING = 1.345  # Huber's: 95 % as sharp as least squares where there are no outliers


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """Minimises relative errors, of which large ones count linearly (Huber), so that a few slow messages do not matter.

    Neither coefficient is negative, and the line does not pass below the quickest message: times are only ever too
    long, and a latency of zero would make any number of rounds look free. Errors are those of weighted least squares at
    the optimum.
    """
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    if len(np.unique(x)) < 2:
        raise ValueError(f"fit: expected messages of at least two sizes, got {sorted(set(map(float, x)))}")
    design = np.stack([np.ones_like(x), x], axis=1) / y[:, None]  # rows in relative terms: the target is 1 everywhere
    weights = np.ones_like(y)
    least = x.min(), y.min()
    for _ in range(_ROUNDS):
        coefficients = _solve(design, weights, *least)
        residuals = design @ coefficients - 1
        spread = 1.4826 * np.median(np.abs(residuals)) + 1e-12
        weights = np.minimum(1.0, _TUNING * spread / np.maximum(np.abs(residuals), 1e-300))
    weighted = design * np.sqrt(weights)[:, None]
    freedom = max(1.0, weights.sum() - 2)
    variance = float(np.sum(weights * residuals**2) / freedom)
    scale = np.linalg.norm(weighted, axis=0)  # the columns differ by orders of magnitude
    inverse = np.linalg.pinv((weighted / scale).T @ (weighted / scale))
    errors = np.sqrt(np.maximum(variance * np.diag(inverse), 0)) / scale
    return Line(float(coefficients[0]), float(coefficients[1]), float(errors[0]), float(errors[1]))


def _solve(design: Floats, weights: Floats, smallest: float, quickest: float) -> Floats:
    """Weighted least squares over lines that rise and take at least ``quickest`` for ``smallest``."""
    root = np.sqrt(weights)
    a, b = design * root[:, None], root
    scale = np.linalg.norm(a, axis=0)  # the columns differ by orders of magnitude
    best = np.linalg.lstsq(a / scale, b, rcond=None)[0] / scale
    if best[1] >= 0 and best[0] + best[1] * smallest >= quickest:
        return np.asarray(best)
    level = np.array([_fraction(b, a[:, 0]), 0.0])
    along = a[:, 1] - smallest * a[:, 0]  # what a slope adds to a line through the quickest message
    steepest = quickest / smallest if smallest > 0 else np.inf
    slope = np.clip(_fraction(b - quickest * a[:, 0], along), 0.0, steepest)
    through = np.array([quickest - slope * smallest, slope])
    return min(level, through, key=lambda line: float(np.sum((a @ line - b) ** 2)))


def _fraction(of: Floats, vector: Floats) -> float:
    """How much of ``vector`` comes nearest to ``of``."""
    return float(vector @ of / (vector @ vector))
