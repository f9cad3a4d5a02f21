"""What messages and kernels cost on a given cluster: measured once, kept as JSON, used by model and planner."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 4


@dataclass(frozen=True, slots=True)
class Line:
    """seconds = alpha + beta · bytes, each with its standard error."""

    alpha: float
    beta: float
    alpha_error: float = 0.0
    beta_error: float = 0.0

    def __call__(self, size: float) -> float:
        return self.alpha + self.beta * size


@dataclass(frozen=True, slots=True)
class Profile:
    """``exchange``: a round in which all ranks talk at once. ``ping``: a message when nobody else talks.
    ``allreduce``: the library's own, by bytes of the vector."""

    ranks: int
    exchange: Line
    ping: Line
    allreduce: Line
    pairs: dict[str, Line] = field(default_factory=dict)  # "host–host" → ping between them, where there are several
    gamma: dict[str, float] = field(default_factory=dict)  # kernel → seconds per element or entry
    points: list[tuple[str, int, float]] = field(default_factory=list)  # what was measured: kind, bytes, seconds

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Profile":
        try:
            told: dict[str, Any] = json.loads(path.read_text())
            if told.pop("format") != FORMAT:
                raise ValueError(f"expected format {FORMAT}, of this spardl; measure again")
            exchange, ping, allreduce = (Line(**told.pop(name)) for name in ("exchange", "ping", "allreduce"))
            pairs = {pair: Line(**line) for pair, line in told.pop("pairs").items()}
            points = [(kind, size, seconds) for kind, size, seconds in told.pop("points")]
            return cls(told.pop("ranks"), exchange, ping, allreduce, pairs=pairs, points=points, **told)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a profile written by `spardl cost measure`: {error}") from error
