"""Who gives a sign of life when it is asked for one."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spardl.effects import TRAINING, Mail, Next, Now, Post, Process
from spardl.notes import Note

PULSE, ROLL_CALL = "pulse", "roll call"


@dataclass(frozen=True, slots=True)
class Ping(Note):
    """To a rank's pulse, which answers whatever else the rank is doing."""

    asker: str  # the process that wants the answer


@dataclass(frozen=True, slots=True)
class Pong(Note):
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class CallRoll:
    """From training: who is there? ``seconds``: to wait for answers."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Silent:
    """To training: these have given no sign of life."""

    ranks: frozenset[int]


class Correspondence:
    """Notes to others. Those for ranks that are silent are kept until they are back: MPI's buffers would fill up."""

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self._kept: dict[int, list[tuple[str, Note]]] = {}

    def tell(self, rank: int, process: str, note: Note) -> Process[None]:
        if rank in self.silent:
            self._kept.setdefault(rank, []).append((process, note))
        else:
            yield Post(rank, process, note)

    def hear_from(self, rank: int) -> Process[bool]:
        """It is not silent any more, if it was: True. Now it gets all it has missed, in order."""
        if rank not in self.silent:
            return False
        self.silent.discard(rank)
        for process, note in self._kept.pop(rank, []):
            yield Post(rank, process, note)
        return True


def pulse() -> Process[None]:
    """A service that every rank has."""
    while True:
        mail: Mail = yield Next()
        yield Post(mail.sender, mail.note.asker, Pong())


def roll_call(me: int, ranks: Iterable[int]) -> Process[None]:
    """A service that calls all ranks when this rank's training wants to know who is there."""
    others = frozenset(ranks) - {me}
    while True:
        mail: Mail = yield Next()
        if isinstance(mail.note, CallRoll):
            silent = yield from _call(others, mail.note.seconds)
            yield Post(me, TRAINING, Silent(silent))


def services(me: int, ranks: int) -> dict[str, Process[Any]]:
    """Of both kinds, for a rank of so many."""
    return {PULSE: pulse(), ROLL_CALL: roll_call(me, range(ranks))}


def _call(ranks: frozenset[int], seconds: float) -> Process[frozenset[int]]:
    for rank in sorted(ranks):
        yield Post(rank, PULSE, Ping(ROLL_CALL))
    silent = set(ranks)
    deadline = (yield Now()) + seconds
    while silent:
        left: float = deadline - (yield Now())
        mail: Any = yield Next(max(0.0, left))
        if mail is None:
            break
        silent.discard(mail.sender)
    return frozenset(silent)
