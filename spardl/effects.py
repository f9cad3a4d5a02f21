"""What a rank's part in a collective, or a process of a rank, may ask of the runtime that drives it.

Both are generators: they yield one of these and are resumed with what arrived. A **collective** has known peers and a
last round; it asks for ``Exchange``, ``Send``, ``Recv``, ``Flush`` and ``Allreduce``. A **process** lives as long as
training does, and its mail comes from anyone; it asks for ``Post``, ``Next``, ``Now``, ``Join`` and ``Compute``.

In collectives, peers are positions in the group that the runtime serves, 0 to P-1. A payload is any C-contiguous
buffer, a list of uint8 arrays to be sent as one, or a ``Draft``; what arrives is a read-only uint8 array of the same
bytes. Messages between two ranks keep their order. Where MPI reads a GPU's memory, payloads and what arrives may be
there (``spardl.kernels.api.Messages``).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

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
class Size:
    """A payload of so many bytes that says nothing else, for virtual time; it arrives as itself."""

    nbytes: int

    def __len__(self) -> int:
        return self.nbytes


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

    values: Any  # an array, or in virtual time its Size
    out: Any
    step: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """Resumed with None: at once on real ranks, in virtual time after so many seconds, in which this rank computes."""

    seconds: float
    step: str = ""


def size_of(payload: Any) -> int:
    """How many bytes a payload has."""
    return payload.nbytes if isinstance(payload, Size) else sum(part.nbytes for part in parts_of(payload))


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


Effect: TypeAlias = Exchange | Send | Recv | Flush | Allreduce | Work

Result = TypeVar("Result")
Collective: TypeAlias = Generator[Effect, Any, Result]


# -- for processes -----------------------------------------------------------------------------------------------------

TRAINING = "training"  # the process that computes gradients: on real ranks, the user's own thread


@dataclass(frozen=True, slots=True)
class Post:
    """Hand a note over to a process of a rank, with an array if need be; resumed at once.

    Mail from one rank to a process of another keeps its order, but a large array may be overtaken by notes without. To
    other ranks an array goes as bytes. Within a rank ``array`` may be any object, which is handed over as it is.
    """

    to: int
    process: str
    note: Any
    array: Any = None


@dataclass(frozen=True, slots=True)
class Next:
    """Resumed with the next ``Mail``, or with None when none has come for ``seconds``; at 0, without waiting."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Now:
    """Resumed with the seconds that the runtime's clock shows."""


@dataclass(frozen=True, slots=True)
class Join:
    """Take part in a collective among ``members``, of which this rank is one; resumed with its result.

    All of them know it by ``number``, which no other among some of these ranks has. Resumed with CALLED_OFF as soon as
    mail with a note of a kind in ``unless`` has come, which is what ``Next`` gives then.
    """

    members: Sequence[int]
    number: int
    collective: "Collective[Any]"
    unless: tuple[type, ...] = ()
    name: str = "collective"


@dataclass(frozen=True, slots=True)
class Compute:
    """Resumed with None after so many seconds, in which this process is busy: what training does in virtual time."""

    seconds: float


class Mail(NamedTuple):
    """What ``Next`` gives. An array from another rank is read-only bytes."""

    sender: int
    note: Any
    array: Any = None


class CalledOff:
    """Something has come that makes a collective pointless."""


CALLED_OFF = CalledOff()

Ask: TypeAlias = Post | Next | Now | Join | Compute
Process: TypeAlias = Generator[Ask, Any, Result]
