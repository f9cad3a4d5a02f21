"""What Partial Reduce's processes tell each other."""

from dataclasses import dataclass

from spardl.notes import Note

CONTROLLER, WORKER = "controller", "member"

# -- between worker and controller -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signal(Note):
    """To the controller: this rank is ready to average its model, which has seen so many iterations."""

    iteration: int
    anchor: int  # of which global average this rank knows the weights, where differences are sent
    layout: str  # what travels with the weights, in few letters: the same on all ranks


@dataclass(frozen=True, slots=True)
class Assemble(Note):
    """To the members of a group: average your models. Each is told its own weight in the mean."""

    number: int
    members: tuple[int, ...]
    weight: float
    iteration: int  # the most that a member has seen
    freshest: int  # the first of those who have
    last: int  # whose signal the others have waited for
    everyone: bool  # an average of all, which is sent whole


@dataclass(frozen=True, slots=True)
class Averaged(Note):
    """To the controller: this rank has the group's average, and can still do without."""

    number: int


@dataclass(frozen=True, slots=True)
class Take(Note):
    """To the members: all have the average, so it counts."""

    number: int


@dataclass(frozen=True, slots=True)
class CallOff(Note):
    """To the members: one of them has stopped. There is no such group, and their signals hold as before."""

    number: int


@dataclass(frozen=True, slots=True)
class Goodbye(Note):
    """To the controller: this rank will not be ready again."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Dismissed(Note):
    """To all: everyone has said goodbye."""


# -- within a rank -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """From training to the worker, with what this rank has to average."""

    iteration: int
    anchor: int
    layout: str


@dataclass(frozen=True, slots=True)
class Close:
    """From training to the worker: there will be no more."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """From the worker to training, with the group's average."""

    group: Assemble
    seconds: float  # in which this rank was averaging
