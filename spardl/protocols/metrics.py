"""Was a rank's work used?"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Metrics:
    """One rank's."""

    iterations: int = 0  # steps of this rank's own
    contributors: list[int] = field(default_factory=list)  # by round, or by group that this rank was in
    staleness: dict[int, int] = field(default_factory=dict)  # rounds or iterations behind → contributions
    used: int = 0  # neighbours' updates, where there is a graph
    dropped: int = 0  # gradients that were too old
    late: int = 0  # updates of neighbours that came too late
    skipped: int = 0  # iterations that were jumped over
    largest_gap: int = 0  # iterations that this rank was ahead of a neighbour
    busy: int = 0  # times that a neighbour had no time to average
    waited_seconds: float = 0.0  # for others
    communicated_seconds: float = 0.0  # in rounds or groups, or waiting for their results
    waited_for_tokens: float = 0.0  # seconds of these, for neighbours that were too far behind
    waited_for: dict[int, float] = field(default_factory=dict)  # rank → seconds, where one rank can be told to be it
