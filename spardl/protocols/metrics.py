"""Was a rank's work used?"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Metrics:
    """One rank's."""

    contributors: list[int] = field(default_factory=list)  # by round
    staleness: dict[int, int] = field(default_factory=dict)  # rounds between computing and reducing → gradients
    dropped: int = 0  # gradients that were too old
    waited_seconds: float = 0.0  # for others
