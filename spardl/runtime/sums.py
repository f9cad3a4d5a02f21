"""Communicators for the MPI library's own all-reduce.

Such sums must not overtake each other, so every object that uses them has a communicator to itself. An MPI has only
some two thousand of them: when an object is gone on all ranks, the next one takes its communicator over.
"""

import weakref
from typing import Any

from spardl.runtime.library import MPI


class Sums:
    """One communicator; ``number`` names it on all ranks."""

    def __init__(self, comm: MPI.Intracomm, number: int) -> None:
        self.comm, self.number = comm, number
        self._unfinished = MPI.REQUEST_NULL  # a sum of a call that was given up
        self._buffers: Any = None
        self._user: weakref.ref[Any] | None = None

    @property
    def is_free(self) -> bool:
        """Whether this rank is through with it."""
        return (self._user is None or self._user() is None) and self.is_sound

    @property
    def is_sound(self) -> bool:
        """Whether no sum is left over: the other ranks would take the next one for it."""
        return bool(self._unfinished.Test())

    def lend_to(self, user: object) -> None:
        self._user = weakref.ref(user)

    def start(self, values: Any, out: Any) -> MPI.Request:
        return self.comm.Iallreduce(values, out)

    def abandon(self, request: MPI.Request, buffers: Any) -> None:
        """Leaves a sum to complete, which it does if all ranks have begun it; it cannot be called off."""
        self._unfinished, self._buffers = request, buffers
