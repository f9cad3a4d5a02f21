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

    Neither coefficient is negative. Errors are those of weighted least squares at the optimum.
    """
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    if len(np.unique(x)) < 2:
        raise ValueError(f"fit: expected messages of at least two sizes, got {sorted(set(map(float, x)))}")
    design = np.stack([np.ones_like(x), x], axis=1) / y[:, None]  # rows in relative terms: the target is 1 everywhere
    weights = np.ones_like(y)
    for _ in range(_ROUNDS):
        coefficients = _solve(design, weights)
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


def _solve(design: Floats, weights: Floats) -> Floats:
    """Weighted least squares with coefficients that are not negative."""
    root = np.sqrt(weights)
    scale = np.linalg.norm(design, axis=0)
    a, b = design / scale * root[:, None], root
    best = np.linalg.lstsq(a, b, rcond=None)[0]
    if (best < 0).any():  # one of them is zero then, and the other the best without it
        alone = [max(0.0, float(a[:, i] @ b / (a[:, i] @ a[:, i]))) for i in range(2)]
        options = [np.array([alone[0], 0.0]), np.array([0.0, alone[1]])]
        best = min(options, key=lambda c: float(np.sum((a @ c - b) ** 2)))
    return np.asarray(best / scale)
