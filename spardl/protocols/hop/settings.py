"""What a Hop is asked to be, and whether that is possible."""

from dataclasses import dataclass
from typing import NamedTuple

from spardl.graphs import Graph

SERIAL, PARALLEL = ORDERS = ("serial", "parallel")


class Skip(NamedTuple):
    """A worker jumps when all its out-neighbours are ``behind`` iterations ahead or more, by at most ``most``."""

    behind: int
    most: int


@dataclass(frozen=True, slots=True)
class Settings:
    """``max_gap``: tokens to begin with; None for no tokens. ``backup``: so many neighbours need not be waited for.

    ``staleness``: an update may be so many iterations old; None: only those of the same iteration count. ``reuse``: one
    that is not too old counts again, less each time. ``order``: whether neighbours get the model after this iteration's
    step (serial), or before it, while it is computed (parallel).
    """

    max_gap: int | None = 4
    backup: int = 0
    staleness: int | None = None
    reuse: bool = False
    skip: Skip | None = None
    order: str = PARALLEL

    @property
    def is_standard(self) -> bool:
        """All updates of every iteration are needed."""
        return self.backup == 0 and self.staleness is None

    def require_legal(self, graph: Graph) -> None:
        """Raises ValueError where training could come to a halt, or the setting has no meaning."""
        least = min((len(neighbours) for neighbours in graph.inward), default=0)
        _require(self.max_gap is None or self.max_gap >= 1, "max_gap", "at least 1, or None", self.max_gap)
        fits = self.backup >= 0 and (self.backup <= least or graph.ranks == 1)
        _require(fits, "backup", f"at most {least}, the fewest neighbours that send to one rank here", self.backup)
        tokens = self.max_gap is not None
        _require(self.backup == 0 or tokens, "max_gap", "a number where there are backup workers", self.max_gap)
        _require(self.staleness is None or self.staleness >= 0, "staleness", "at least 0, or None", self.staleness)
        _require(not self.reuse or self.staleness is not None, "reuse", "False without staleness", self.reuse)
        if self.skip is not None:
            sound = self.skip.behind >= 2 and self.skip.most >= 2
            _require(sound, "skip", "(behind, most) of at least 2 each", tuple(self.skip))
            _require(not self.is_standard, "skip", "None without backup or staleness", tuple(self.skip))
            _require(tokens, "max_gap", "a number where iterations are skipped", self.max_gap)
        fixed = graph.period == 1 or self.is_standard
        _require(fixed, "graph", "one that does not change, with backup or staleness", graph.name)


def _require(condition: bool, name: str, expected: str, got: object) -> None:
    if not condition:
        raise ValueError(f"Hop: expected {name} to be {expected}, got {got!r}")
