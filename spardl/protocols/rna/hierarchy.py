"""What goes on between groups of ranks: their weights are averaged, and all end together.

Rank 0 serves. Each group's lead hands in its weights now and then and gets the mean of all groups' latest; the group
then moves by the difference, in a round that brings this shift to all its ranks at the same place among the others. No
group waits for another before the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.collectives.frames import numbers_in
from spardl.effects import TRAINING, Mail, Next, Now, Post, Process
from spardl.notes import Note
from spardl.protocols.rna.averaging import Averager
from spardl.protocols.rna.notes import LEAD, WORKER, Offer, RoundsEnded
from spardl.protocols.rna.paces import REPORTS_EVERY, Groups, Paces
from spardl.protocols.rna.parts import Shift

SERVER = 0  # the rank
AVERAGER, WATCH, REPORTER, ENDING = "averager", "watch", "reporter", "ending"


@dataclass(frozen=True, slots=True)
class Weights(Note):
    """To the averager, with an array: a group's."""


@dataclass(frozen=True, slots=True)
class Mean(Note):
    """To a lead, with an array: of all groups' latest weights."""


@dataclass(frozen=True, slots=True)
class Working(Note):
    """To the watch: this rank is at work, and an iteration takes it so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Progress(Note):
    """From the watch to all: somebody is at work."""


@dataclass(frozen=True, slots=True)
class Regroup(Note):
    """From the watch to all: meet after the next iteration, to form other groups."""


@dataclass(frozen=True, slots=True)
class GroupEnded(Note):
    """From a lead to the server: its group is through with all its rounds."""


@dataclass(frozen=True, slots=True)
class AllEnded(Note):
    """From the server to all: all groups are."""


@dataclass(frozen=True, slots=True)
class Push:
    """From training to the lead on its rank, with the group's weights."""


@dataclass(frozen=True, slots=True)
class Iterated:
    """From training: once more; ``pace`` is what an iteration takes, in seconds."""

    pace: float


# -- weights -----------------------------------------------------------------------------------------------------------


def averager(groups: Groups, size: int, dtype: npt.DTypeLike) -> Process[None]:
    """A service on the server: a lead's weights in, the mean out."""
    leads = {group[0]: number for number, group in enumerate(groups)}
    mean = Averager([len(group) for group in groups])
    while True:
        mail: Mail = yield Next()
        weights = numbers_in(mail.array, dtype, size)
        yield Post(mail.sender, LEAD, Mean(), mean.push(leads[mail.sender], weights).view(np.uint8))


def lead(me: int, size: int, dtype: npt.DTypeLike) -> Process[None]:
    """On each group's first rank. Ends with the group's rounds."""
    asked_for: npt.NDArray[Any] | None = None  # weights whose mean with others is under way
    while not isinstance((mail := (yield Next())).note, RoundsEnded):
        if isinstance(mail.note, Push) and asked_for is None:  # or those before are still under way
            asked_for = mail.array
            yield Post(SERVER, AVERAGER, Weights(), asked_for.view(np.uint8))
        elif isinstance(mail.note, Mean) and asked_for is not None:
            yield Post(me, WORKER, Offer(), Shift(numbers_in(mail.array, dtype, size) - asked_for))
            asked_for = None
    yield Post(SERVER, ENDING, GroupEnded())


# -- paces -------------------------------------------------------------------------------------------------------------


def reporter(me: int, every: float) -> Process[None]:
    """A service on every rank: tells the watch how fast training is, and training what the watch has to say.

    Often enough for groups to be judged by, and, after ``every`` seconds, so that nobody takes this rank for dead.
    """
    new = 0  # iterations since the last report
    told_at: float = yield Now()
    while True:
        mail: Mail = yield Next()
        if isinstance(mail.note, Iterated):
            new += 1
            now: float = yield Now()
            if new >= REPORTS_EVERY or now > told_at + every:
                new, told_at = 0, now
                yield Post(SERVER, WATCH, Working(mail.note.pace))
        else:
            yield Post(me, TRAINING, mail.note)


def watch(ranks: int, paces: Paces | None, every: float) -> Process[None]:
    """A service on the server: calls for other groups when paces say so, and tells all that there is progress."""
    regroups = False
    told_at: float = yield Now()
    while True:
        mail: Mail = yield Next()
        if paces is not None and paces.report(mail.sender, mail.note.seconds) and not regroups:
            regroups = True
            yield from _tell_all(ranks, REPORTER, Regroup())
        if (now := (yield Now())) > told_at + every:
            told_at = now
            yield from _tell_all(ranks, REPORTER, Progress())


# -- the end -----------------------------------------------------------------------------------------------------------


def ending(me: int, ranks: int, groups: Sequence[Sequence[int]]) -> Process[None]:
    """On every rank: until all groups are through with their rounds. They may have much left to do."""
    left = len(groups) if me == SERVER else 0
    while True:
        mail: Mail = yield Next()
        if isinstance(mail.note, AllEnded):
            return
        left -= 1
        if left == 0:
            yield from _tell_all(ranks, ENDING, AllEnded())


def _tell_all(ranks: int, process: str, note: Note) -> Process[None]:
    for rank in range(ranks):
        yield Post(rank, process, note)
