"""What a rank's part in a collective may ask of the runtime that drives it.

A collective is a generator: it yields one of these and is resumed with what arrived. Peers are positions in the group
that the runtime serves, 0 to P-1. A payload is any C-contiguous buffer, a list of uint8 arrays to be sent as one, or a
``Draft``; what arrives is a read-only uint8 array of the same bytes. Messages between two ranks keep their order.

Where MPI reads a GPU's memory, payloads and what arrives may be there (``spardl.kernels.api.Messages``).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]

FRONT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Draft:
    """A payload that begins behind the first FRONT_BYTES of ``paper``, which are for what a runtime puts in front.

    So that need not copy the rest. Whoever sends it does not use it any more.
    """

    paper: Bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send ``payload`` to one peer and receive from another (or the same) at once; resumed with what arrived."""

    to: int
    payload: Any
    source: int
    step: str = ""  # names the round in errors and traces


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``payload``; resumed with None when the buffer may be used again, which is not to say that it arrived."""

    to: int
    payload: Any
    step: str = ""


@dataclass(frozen=True, slots=True)
class Recv:
    """Receive from ``source``; resumed with what arrived."""

    source: int
    step: str = ""


@dataclass(frozen=True, slots=True)
class Flush:
    """Resumed with None when all that this rank has sent has reached its receivers."""

    step: str = ""


@dataclass(frozen=True, slots=True)
class Allreduce:
    """The library's own, over all ranks of the group: resumed with None when ``out`` is the sum of all ``values``.

    Nobody can leave it before all are there, so ranks make sure of each other first. How the library does it is not
    known; it counts as one round and one message, of the bytes that the best algorithm for long vectors would send.
    """

    values: npt.NDArray[Any]
    out: npt.NDArray[Any]
    step: str = ""


def parts_of(payload: Any) -> list[Bytes]:
    """The arrays that a payload consists of."""
    if isinstance(payload, Draft):
        return [payload.paper[FRONT_BYTES:]]
    return payload if isinstance(payload, list) else [np.frombuffer(payload, np.uint8)]


def front_of(message: Any, count: int) -> memoryview:
    """At least the first ``count`` bytes, or all it has."""
    return (message if isinstance(message, np.ndarray) else fronts([message], count)[0]).data


def fronts(messages: Sequence[Any], count: int) -> list[Bytes]:
    """The first ``count`` bytes of each, or all it has. What is in a GPU's memory is fetched at once."""
    if not messages or isinstance(messages[0], np.ndarray):  # they are all in the same memory
        return [message[:count] for message in messages]
    fetched: list[Bytes] = messages[0].fetch_fronts(messages, count)
    return fetched


Effect: TypeAlias = Exchange | Send | Recv | Flush | Allreduce

Result = TypeVar("Result")
Collective: TypeAlias = Generator[Effect, Any, Result]
