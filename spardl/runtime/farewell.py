"""What happens when the program ends on a rank on which others may still be waiting: they are told.

A rank whose program has ended makes no more calls, whether it ended by an exception, by ``sys.exit`` or as it should.
Whoever waits for it hears of that as the interpreter ends, which is before MPI does. MPI ends on all ranks together,
and not while there are messages that nobody has taken: so everyone hears the others out. Nor does it end while a rank
is stopped or dead: so a rank that ends by an error, or has found a peer gone, sees whether all others end as well, and
aborts the job if they do not.
"""

import atexit
import contextlib
import os
import sys
import time
import weakref
from collections.abc import Iterable
from functools import cache
from typing import Protocol

from spardl import timeline
from spardl.errors import says_gone
from spardl.runtime import goodbye
from spardl.runtime.goodbye import Line
from spardl.runtime.library import MPI
from spardl.runtime.output import let_be_read

_OTHERS_END_WITHIN = 2.0  # seconds, after a peer was found gone
_LOOK_EVERY = 5e-3  # seconds
_LAST_WORDS_TAKE = 1.0  # seconds


class Leaves(Protocol):
    """What others may be waiting for."""

    def leave(self, error: BaseException | None) -> None:
        """The program ends here, by ``error`` or as it should. Does not wait for long."""


_open: "weakref.WeakSet[Leaves]" = weakref.WeakSet()
_process = os.getpid()
_lost: set[int] = set()  # ranks of COMM_WORLD that did not answer, and have not been heard of since
_left = False


def remember(leaves: Leaves) -> None:
    """Lets it take its leave in the end, unless it is garbage by then."""
    _open.add(leaves)


def forget(leaves: Leaves) -> None:
    _open.discard(leaves)


def lose(line: Line, ranks: Iterable[int]) -> None:
    """These ranks of its communicator do not answer."""
    _lost.update(line.in_world[rank] for rank in ranks)


def find_again(line: Line, ranks: Iterable[int]) -> None:
    """A call with these has succeeded."""
    if _lost:
        _lost.difference_update(line.in_world[rank] for rank in ranks)


def before_mpi_ends() -> None:
    """Takes leave also if the program ends MPI itself."""
    if MPI.COMM_SELF.Get_attr(_at_finalize()) is None:
        MPI.COMM_SELF.Set_attr(_at_finalize(), True)


@cache
def _at_finalize() -> int:
    """MPI_Finalize deletes COMM_SELF's attributes before it does anything else."""
    return MPI.Comm.Create_keyval(delete_fn=lambda _comm, _keyval, _value: leave(), nopython=False)


@atexit.register
def leave() -> None:
    """Takes this rank's leave of all others, once."""
    global _left
    if _left or os.getpid() != _process:  # forked, say by a data loader: not a rank
        return
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return
    _left = True
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    for leaves in list(_open):
        with contextlib.suppress(Exception):  # nobody is left to be told of it
            leaves.leave(error)
    if MPI.COMM_WORLD.size == 1:
        timeline.close()
        return
    patience = _patience(error)
    goodbye.tell_all(error, everyone=error is not None or patience is not None)
    if MPI.COMM_WORLD.rank != 0:
        timeline.close()  # rank 0 waits for that
    if error is None and patience is None:
        _hear_others_out()
    all_end = patience is None or _others_end(patience)
    timeline.close(in_peace=all_end)
    if not all_end:
        with contextlib.suppress(Exception):
            let_be_read()
        MPI.COMM_WORLD.Abort(1)


def _hear_others_out() -> None:
    """Waits for the others to end, as MPI would; there is no telling how much they have left to do."""
    ended_at: float | None = None
    while unheard := goodbye.unheard():
        if unheard <= goodbye.departed.keys():  # they have left, and do not know of all communicators that we know of
            ended_at = ended_at or time.monotonic()
            if time.monotonic() > ended_at + _LAST_WORDS_TAKE:
                return
        time.sleep(_LOOK_EVERY)
        goodbye.hear_all()


def _patience(error: BaseException | None) -> float | None:
    """Seconds to wait for the others to end, too; None if this rank need not know."""
    if _lost or says_gone(error) or isinstance(error, MPI.Exception):
        return _OTHERS_END_WITHIN
    # mpi4py's own runner aborts the job after an exception, and that at once.
    if error is None or "mpi4py.run" in sys.modules:
        return None
    return max((line.timeout for line in goodbye.lines()), default=None)


def _others_end(patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        goodbye.hear_all()
        missing = _lost.union(*(line.missing() for line in goodbye.lines())) - goodbye.departed.keys()
        if not missing or time.monotonic() > deadline:  # one that was lost may have come back since
            return not missing
        time.sleep(_LOOK_EVERY)
