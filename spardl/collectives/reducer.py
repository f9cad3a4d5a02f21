"""What an all-reduce algorithm looks like to SparseAllreduce."""

from collections.abc import Mapping
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

    def in_common(self) -> dict[str, Any]:
        """By name, what is remembered that all ranks must have alike. JSON can tell it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from ``state``, which must be of a reducer built alike (the façade checks that).

        Raises ValueError if it is damaged; nothing has changed then.
        """
