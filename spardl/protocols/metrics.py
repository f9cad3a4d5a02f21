"""Was a rank's work used?"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Metrics:
    """One rank's."""

    iterations: int = 0  # steps of this rank's own
    contributors: list[int] = field(default_factory=list)  # by round, or by group that this rank was in
    staleness: dict[int, int] = field(default_factory=dict)  # rounds or iterations behind → contributions
    dropped: int = 0  # gradients that were too old
    waited_seconds: float = 0.0  # for others
    waited_for: dict[int, float] = field(default_factory=dict)  # rank → seconds, where one rank can be told to be it
