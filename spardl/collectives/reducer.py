"""What an all-reduce algorithm looks like to SparseAllreduce."""

from typing import Any, Protocol

import numpy as np

from spardl.effects import Collective
from spardl.kernels.api import Values
from spardl.sparse import SparseVector


class Reducer(Protocol):
    """One rank's part in one reduce after another, with what it remembers between them.

    ``reduce`` is a transaction: what is remembered changes in its last step, after all that can fail.
    """

    dtype: np.dtype[Any]

    @property
    def residual(self) -> Values:
        """What this rank still owes; the reducer's own array, not to be written."""

    def reduce(self, grad: Values) -> Collective[SparseVector]:
        """The sum over ranks of gradient and residual, or its largest entries; what is left out becomes residual."""

    def undo(self) -> None:
        """Takes the last reduce back. It must have succeeded, and no other have been begun since."""

    def owe(self, residual: Values) -> None:
        """Starts again with a copy of this residual."""

    def rebudget(self, k: int) -> None:
        """Keeps ``k`` entries from now on. The residual stays; the rest was learnt for another k and is forgotten."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly, as copies."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from ``state``, which must be of a reducer built alike (the façade checks)."""
