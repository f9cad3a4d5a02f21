"""What Hop's workers tell each other."""

from dataclasses import dataclass

from spardl.notes import Note

WORKER = "hop"


@dataclass(frozen=True, slots=True)
class Update(Note):
    """To an out-neighbour, with a model: this rank's, of that iteration. Those on one link are numbered."""

    iteration: int
    number: int


@dataclass(frozen=True, slots=True)
class Token(Note):
    """To an in-neighbour: this rank has entered that iteration, so it may go further."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Leaving(Note):
    """To all neighbours: this rank trains no more. The last iteration that it has sent an update of, −1 if none."""

    iteration: int


@dataclass(frozen=True, slots=True)
class SendWhole(Note):
    """To an in-neighbour: this rank's copy of its model is damaged."""


# -- within a rank -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """From training to the worker, with the model that it starts from: in parallel order neighbours get it at once."""


@dataclass(frozen=True, slots=True)
class Offer:
    """From training to the worker, with the model after this iteration's step, and what it was before that."""


@dataclass(frozen=True, slots=True)
class Close:
    """From training to the worker: there will be no more."""


@dataclass(frozen=True, slots=True)
class Entered:
    """From the worker to training, with the model: the next iteration has begun."""

    iteration: int
    ages: tuple[int, ...]  # of neighbours' updates in the mean: how many iterations they were behind
    late: int  # updates that came too late, since the last time
    skipped: int  # iterations that were jumped over
    ahead: int  # of the out-neighbour that is furthest behind, as far as this rank knows
    waited_for_tokens: float  # seconds
