"""Models as vectors: what a rank hands in to be averaged, and what comes of it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
_NO_COUNTS: npt.NDArray[np.int64] = np.zeros(0, np.int64)
_NO_NUMBERS: npt.NDArray[np.float64] = np.zeros(0, np.float64)


class Model(NamedTuple):
    """One rank's, as vectors. Those of all ranks are as long.

    ``values`` has weights, then what travels with them by the same mean (buffers), then the optimizer's state, which
    begins at ``state``. Of ``counts`` the group gets the largest each, and so of
    ``numbers``, which are the optimizer's, unless the state is adopted.
    """

    values: Values
    state: int
    counts: npt.NDArray[np.int64] = _NO_COUNTS
    numbers: npt.NDArray[np.float64] = _NO_NUMBERS


def weighed(values: Values, weight: float, out: Values | None = None) -> Values:
    """``values`` × ``weight``, by a division: 3 is a float, 1/3 is not.

    As a float32 1/3 is 3e-8 too large: three models that are averaged a million times would grow by 3 %.
    """
    number = values.dtype.type
    negligible = weight < np.finfo(values.dtype).tiny  # its inverse is not finite
    result: Values = np.multiply(values, number(0), out) if negligible else np.divide(values, number(1 / weight), out)
    return result
