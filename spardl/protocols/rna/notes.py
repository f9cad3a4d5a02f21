"""What RNA's processes tell each other."""

from dataclasses import dataclass

from spardl.notes import Note

SCHEDULER, WORKER, LEAD = "scheduler", "worker", "lead"

# -- between worker and scheduler --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready(Note):
    """To the scheduler: there is a gradient that no round has taken."""


@dataclass(frozen=True, slots=True)
class Done(Note):
    """To the scheduler: all this rank's gradients are reduced, and there will be no more."""


@dataclass(frozen=True, slots=True)
class Prepared(Note):
    """To the scheduler: this rank has the result of an attempt, and can take it back."""

    number: int


@dataclass(frozen=True, slots=True)
class Got(Note):
    """To the scheduler: this rank has published a round's result."""

    round: int


@dataclass(frozen=True, slots=True)
class Go(Note):
    """To all: an attempt at a round, by its members. It ends every earlier attempt."""

    round: int
    number: int
    members: tuple[int, ...]
    needed_from: int = 0  # nobody will ask for the results of earlier rounds
    shift: bool = False  # the round brings no gradients, but a shift of the weights, which the member has


@dataclass(frozen=True, slots=True)
class Commit(Note):
    """To all: what the members have prepared is the round's result. Told again if one who has it falls silent."""

    round: int
    has: tuple[int, ...]  # ranks that have the result
    terms: str = ""  # on which all apply it alike, such as the learning rate

    def provider(self, rank: int) -> int:
        """From whom ``rank`` is to fetch it."""
        return self.has[rank % len(self.has)]


@dataclass(frozen=True, slots=True)
class Stop(Note):
    """To all: there are no more rounds."""

    rounds: int


# -- within a rank -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gradient:
    """From training to the worker, with the gradient, which was computed with the weights after ``version`` rounds."""

    version: int


@dataclass(frozen=True, slots=True)
class Close:
    """From training to the worker: no more gradients will come."""


@dataclass(frozen=True, slots=True)
class Terms:
    """From training to the scheduler on its rank: what goes along with every commit from now on."""

    text: str


@dataclass(frozen=True, slots=True)
class Offer:
    """To the worker on the scheduler's rank, with a shift of the group's weights."""


@dataclass(frozen=True, slots=True)
class HasShift:
    """From the worker to the scheduler on its rank: there is a shift to bring about."""


@dataclass(frozen=True, slots=True)
class Published:
    """From the worker to training, with a round's result; every round, in order."""

    terms: str
    ages: tuple[int, ...]  # of this rank's gradients that are in it: rounds between computing and reducing
    dropped: int  # gradients of this rank that were too old, since the last time
    seconds: float  # that this rank spent in the round, or waiting for its result


@dataclass(frozen=True, slots=True)
class RoundsEnded:
    """From the worker to the lead on its rank: there are no more rounds."""
