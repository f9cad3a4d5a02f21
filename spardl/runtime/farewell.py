"""What happens when the program ends on a rank on which others may still be waiting: they are told why.

A program that ends by an exception outside of any collective cannot raise it on the other ranks. They would wait for
this rank until their time is up; so whatever they may be waiting in hears of the exception as the interpreter ends,
which is before MPI does.
"""

import atexit
import contextlib
import os
import sys
import weakref
from typing import Protocol

from mpi4py import MPI


class Leaves(Protocol):
    """What others may be waiting for."""

    def leave(self, error: BaseException | None) -> None:
        """The program ends here, by ``error`` or as it should. Does not wait for long."""


_open: "weakref.WeakSet[Leaves]" = weakref.WeakSet()
_process = os.getpid()


def remember(leaves: Leaves) -> None:
    """Lets it take its leave in the end, unless it is garbage by then."""
    _open.add(leaves)


def forget(leaves: Leaves) -> None:
    _open.discard(leaves)


@atexit.register
def _leave() -> None:
    if os.getpid() != _process:  # forked, say by a data loader: not a rank
        return
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    for leaves in list(_open):
        with contextlib.suppress(Exception):  # nobody is left to be told of it
            leaves.leave(error)
