"""What gossiping workers tell each other."""

from dataclasses import dataclass

from spardl.notes import Note

WORKER = "gossip"


@dataclass(frozen=True, slots=True)
class Proposal(Note):
    """To a neighbour, with this rank's model: shall we average?"""


@dataclass(frozen=True, slots=True)
class Acceptance(Note):
    """In answer, with the neighbour's model as it was: it has gone half of the way already."""


@dataclass(frozen=True, slots=True)
class Busy(Note):
    """In answer: it has a proposal of its own open, so not this time."""


@dataclass(frozen=True, slots=True)
class Parting(Note):
    """To all neighbours: this rank trains no more. So many of the receiver's proposals it has accepted."""

    accepted: int


# -- within a rank -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """From training to the worker, with the model that it starts from."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """From training to the worker, with the model after a step."""


@dataclass(frozen=True, slots=True)
class Finished:
    """From training to the worker: there will be no more steps."""


@dataclass(frozen=True, slots=True)
class Gossiped:
    """From the worker to training, with the model. ``partner``: with whom it was averaged, or −1."""

    partner: int
    answered: int  # proposals of others that were accepted, since the last time
    busy: bool  # the neighbour was
