"""What scheduler and workers tell each other; a few dozen bytes each."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, get_args, get_origin

from spardl.errors import WireError


@dataclass(frozen=True, slots=True)
class Ready:
    """To the scheduler: there is a gradient that no round has taken."""


@dataclass(frozen=True, slots=True)
class Done:
    """To the scheduler: all this rank's gradients are reduced, and there will be no more."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """To the scheduler: this rank has the result of an attempt, and can take it back."""

    number: int


@dataclass(frozen=True, slots=True)
class Got:
    """To the scheduler: this rank has published a round's result."""

    round: int


@dataclass(frozen=True, slots=True)
class Pong:
    """To the scheduler: a sign of life."""


@dataclass(frozen=True, slots=True)
class Ping:
    """To a rank, which answers with Pong whatever it is doing."""


@dataclass(frozen=True, slots=True)
class Want:
    """From rank to rank: send me this round's result."""

    round: int


@dataclass(frozen=True, slots=True)
class Fault:
    """To all, from a rank that cannot go on: neither can the others."""

    text: str


@dataclass(frozen=True, slots=True)
class Go:
    """To all: an attempt at a round, by its members. It ends every earlier attempt."""

    round: int
    number: int
    members: tuple[int, ...]
    needed_from: int = 0  # nobody will ask for the results of earlier rounds
    shift: bool = False  # the round brings no gradients, but a shift of the weights, which the member has


@dataclass(frozen=True, slots=True)
class Commit:
    """To all: what the members have prepared is the round's result. Told again if one who has it falls silent."""

    round: int
    has: tuple[int, ...]  # ranks that have the result
    terms: str = ""  # on which all apply it alike, such as the learning rate

    def provider(self, rank: int) -> int:
        """From whom ``rank`` is to fetch it."""
        return self.has[rank % len(self.has)]


@dataclass(frozen=True, slots=True)
class Stop:
    """To all: there are no more rounds."""

    rounds: int


# -- between groups ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Working:
    """To rank 0: this rank is at work, and an iteration takes it so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """From rank 0 to all: somebody is at work."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """From rank 0 to all: meet after the next iteration, to form other groups."""


@dataclass(frozen=True, slots=True)
class Ended:
    """To rank 0: a group is through with all its rounds. From rank 0 to all: all groups are."""


_InGroup: TypeAlias = Ready | Done | Prepared | Got | Pong | Ping | Want | Fault | Go | Commit | Stop
Note: TypeAlias = _InGroup | Working | Progress | Regroup | Ended
_KINDS: dict[str, Callable[..., Note]] = {kind.__name__: kind for kind in get_args(Note)}


def to_bytes(note: Note) -> bytes:
    return json.dumps([type(note).__name__, asdict(note)]).encode()


def from_bytes(text: bytes) -> Note:
    """What ``to_bytes`` was given. Raises WireError for other bytes."""
    try:
        kind, told = json.loads(text)
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
        note = _KINDS[kind](**values)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise _no_note(text) from None
    if not all(_fits(getattr(note, of.name), of.type) for of in fields(note)):
        raise _no_note(text)
    return note


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return type(value) is tuple and all(type(part) is int for part in value)
    return type(value) is kind or (kind is float and type(value) is int)


def _no_note(text: bytes) -> WireError:
    return WireError(f"{len(text)} bytes arrived that are no note of spardl's: do all ranks run the same spardl?")
