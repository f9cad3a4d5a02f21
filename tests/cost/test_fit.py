"""The line through measured message times."""

import numpy as np
import pytest

from spardl.cost.fit import fit_line

SIZES = np.repeat(2 ** np.arange(3, 27), 5)


@pytest.mark.parametrize(("alpha", "beta"), [(50e-6, 8e-9), (2e-6, 1e-10), (1e-3, 8e-8)])
def test_recovers_the_line_under_noise_and_outliers(alpha, beta):
    rng = np.random.default_rng(0)
    seconds = (alpha + beta * SIZES) * (1 + 0.05 * rng.standard_normal(len(SIZES)))
    seconds[rng.choice(len(SIZES), 12, replace=False)] *= 8
    line = fit_line(SIZES, seconds)
    assert line.alpha == pytest.approx(alpha, rel=0.1)
    assert line.beta == pytest.approx(beta, rel=0.05)
    assert abs(line.alpha - alpha) < 5 * line.alpha_error
    assert abs(line.beta - beta) < 5 * line.beta_error
    assert line(1000) == line.alpha + 1000 * line.beta


def test_never_negative():
    line = fit_line([1, 10, 100], [1e-6, 9e-6, 101e-6])  # no latency to speak of
    assert line.alpha >= 0
    assert line.beta == pytest.approx(1e-6, rel=0.2)
    falling = fit_line([1, 10, 100], [3e-6, 2e-6, 1e-6])
    assert (falling.alpha > 0, falling.beta) == (True, 0)


def test_no_message_is_free():
    """Few sizes, and times that grow faster than they: a plain fit puts the latency at zero."""
    sizes = np.repeat([64, 4096, 2**18, 2**22], 5)
    seconds = np.repeat([40e-6, 60e-6, 12e-3, 400e-3], 5)
    line = fit_line(sizes, seconds)
    assert line(64) >= 40e-6 * (1 - 1e-9)
    assert line.alpha > 30e-6
    assert line.beta > 0


def test_needs_two_sizes():
    with pytest.raises(ValueError, match="at least two sizes"):
        fit_line([8, 8], [1, 1])
