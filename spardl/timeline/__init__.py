"""What every rank did when, for a Chrome-trace viewer: ``SPARDL_TIMELINE=trace.json``.

Nothing here is called while a collective runs unless the variable is set: collectives and kernels are wrapped when they
are built. Each rank writes a file of its own; rank 0 merges them when its process ends.
"""

import contextlib
import logging
from typing import Any

from spardl import environment
from spardl.timeline.recorder import Recorder

__all__ = ["Recorder", "begin", "close", "current", "span"]

_recorder: Recorder | None = None
_nothing = contextlib.nullcontext()


def current() -> Recorder | None:
    """This process's, if there is to be a timeline. ``begin`` comes first."""
    return _recorder


def begin(rank: int, ranks: int, host: str) -> None:
    """Called when this process first communicates; further calls change nothing."""
    global _recorder
    path = environment.TIMELINE.get()
    if not path or _recorder is not None:
        return
    try:
        _recorder = Recorder(path, rank, ranks, host)
    except OSError as error:  # no reason not to train
        logging.getLogger("spardl.timeline").warning("spardl: rank %d has no timeline: %s", rank, error)


def close(*, in_peace: bool = True) -> None:
    """The process ends, and whoever waits for it has been told. ``in_peace``: the other ranks end as well."""
    if _recorder is not None:
        _recorder.close(in_peace=in_peace)


def span(name: str, **details: Any) -> contextlib.AbstractContextManager[None]:
    """What this thread does inside is an event of the timeline."""
    return _nothing if _recorder is None else _recorder.span(name, details)
