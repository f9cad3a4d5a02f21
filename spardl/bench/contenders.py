"""Which algorithms are compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from spardl import schedule
from spardl.allreduce import ALGORITHMS
from spardl.collectives.rivals import DENSE

BASELINE = "MPI_Allreduce"


@dataclass(frozen=True, slots=True)
class Contender:
    """``str`` is what ``parse`` reads."""

    algorithm: str
    teams: int = 1

    def __str__(self) -> str:
        return self.algorithm if self.teams == 1 else f"{self.algorithm}:{self.teams}"

    @property
    def is_dense(self) -> bool:
        return self.algorithm in DENSE

    def most_entries(self, ranks: int, size: int, k: int) -> int:
        """How many its result may have."""
        if self.is_dense:
            return size
        factors = {"topk_a": ranks, "topk_dsa": ranks, "oktopk": 1.5}
        return min(size, int(factors.get(self.algorithm, 1) * k))


def everything(ranks: int) -> list[Contender]:
    """All algorithms, and SparDL with every possible number of teams."""
    spardl = [Contender("spardl", teams) for teams in schedule.team_counts(ranks)]
    return [*spardl, *(Contender(name) for name in ALGORITHMS if name != "spardl")]


def choose(names: Sequence[str], ranks: int) -> list[Contender]:
    """In the order in which they are named, each once; ``all`` stands for everything."""
    chosen: list[Contender] = []
    for name in names:
        chosen += everything(ranks) if name == "all" else [parse(name, ranks)]
    return list(dict.fromkeys(chosen))


def parse(name: str, ranks: int) -> Contender:
    """``algorithm`` or ``spardl:teams``."""
    algorithm, colon, teams = name.partition(":")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"expected one of {', '.join(ALGORITHMS)}, spardl:TEAMS or all, got {name!r}")
    if not colon:
        return Contender(algorithm)
    if algorithm != "spardl":
        raise ValueError(f"{algorithm} has no teams, got {name!r}")
    possible = schedule.team_counts(ranks)
    if not teams.isdecimal() or int(teams) not in possible:
        raise ValueError(f"expected teams that divide {ranks} ranks, i.e. one of {possible}, got {name!r}")
    return Contender(algorithm, int(teams))
