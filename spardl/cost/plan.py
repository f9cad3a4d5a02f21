"""Which algorithm, and how many teams: all candidates are predicted, and the fastest is taken."""

from collections.abc import Iterable

from spardl import schedule
from spardl.collectives.rivals import RIVALS
from spardl.cost.model import Prediction, predict
from spardl.cost.profile import Profile

# A plan changes how long a reduce takes, not what its result means: SparDL's k entries, or everything.
CANDIDATES = ("spardl", "dense_ring", "dense_rabenseifner", "dense_recursive_doubling", "dense_mpi")


def rank_all(
    profile: Profile,
    *,
    ranks: int,
    size: int,
    k: int,
    algorithms: Iterable[str] = ("spardl", *RIVALS),
    teams: Iterable[int] | None = None,
    sag: str = "auto",
    itemsize: int = 4,
    wire: str = "auto",
) -> list[Prediction]:
    """All algorithms, and SparDL with all its team counts (or ``teams``), fastest first."""
    counts = schedule.team_counts(ranks) if teams is None else list(teams)
    if sag == "r":
        counts = [d for d in counts if schedule.is_power_of_two(d)]
    options = [(name, d) for name in algorithms for d in (counts if name == "spardl" else [1])]

    def prediction(name: str, d: int) -> Prediction:
        return predict(profile, name, ranks=ranks, size=size, k=k, teams=d, sag=sag, itemsize=itemsize, wire=wire)

    return sorted((prediction(*option) for option in options), key=lambda p: p.seconds)
