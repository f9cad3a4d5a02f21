"""What a rank hands in to be averaged, and what comes of it."""

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
