"""What rounds gave, for ranks that were absent: they ask one who has it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spardl.effects import Bytes, Mail, Next, Post, Process
from spardl.notes import Note

RESULTS = "results"


@dataclass(frozen=True, slots=True)
class Want(Note):
    """From rank to rank: send me this round's result."""

    round: int
    asker: str  # the process that wants it


@dataclass(frozen=True, slots=True)
class Result(Note):
    """With an array: a round's result. ``kind``: what the array is, for who reads it."""

    round: int
    kind: str


@dataclass(frozen=True, slots=True)
class Keep:
    """From a process of this rank, with a result: somebody may want it."""

    round: int


@dataclass(frozen=True, slots=True)
class Forget:
    """From a process of this rank: nobody will ask for the results of earlier rounds."""

    before: int


def results(write: Callable[[Any], tuple[str, Bytes]]) -> Process[None]:
    """A service that every rank has. ``write`` makes a result's kind and bytes."""
    kept: dict[int, Any] = {}
    written: dict[int, tuple[str, Bytes]] = {}
    waiting: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)  # who wants which round, once it is here
    while True:
        mail: Mail = yield Next()
        note = mail.note
        if isinstance(note, Forget):
            for log in (kept, written):
                for round in [round for round in log if round < note.before]:
                    del log[round]
            continue
        if isinstance(note, Keep):
            kept[note.round] = mail.array
        elif isinstance(note, Want):
            waiting[note.round].append((mail.sender, note.asker))
        if note.round in kept and note.round in waiting:
            if note.round not in written:
                written[note.round] = write(kept[note.round])
            kind, array = written[note.round]
            for rank, asker in waiting.pop(note.round):
                yield Post(rank, asker, Result(note.round, kind), array)
