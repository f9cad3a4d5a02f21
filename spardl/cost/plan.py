"""Which algorithm, and how many teams: all candidates are predicted, and the fastest is taken."""

import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from spardl import environment, schedule
from spardl.agreement import gather_json
from spardl.collectives.rivals import DENSE, RIVALS
from spardl.cost.measure import SHORT_SIZES, measure
from spardl.cost.model import Prediction, predict
from spardl.cost.profile import Profile
from spardl.runtime.group import CommLike, Group

AUTO = "auto"
ProfileLike: TypeAlias = Profile | str | os.PathLike[str] | None

_log = logging.getLogger("spardl.plan")


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be reduced, and what is left open."""

    size: int
    k: int
    algorithm: str
    teams: int | str
    sag: str
    wire: str
    wire_dtype: str

    def algorithms(self, whole_communicator: bool) -> list[str]:
        """A plan changes how long a reduce takes, not what it is for: SparDL's entries, or all there is."""
        if self.algorithm != AUTO:
            return [self.algorithm]
        return ["spardl", *(name for name in DENSE if whole_communicator or name != "dense_mpi")]


def rank_all(
    profile: Profile,
    *,
    ranks: int,
    size: int,
    k: int,
    algorithms: Iterable[str] = ("spardl", *RIVALS),
    teams: int | str = AUTO,
    sag: str = "auto",
    wire: str = "auto",
    wire_dtype: str = "same",
) -> list[Prediction]:
    """All algorithms, and SparDL with all its team counts unless ``teams`` is one, fastest first."""
    counts = schedule.team_counts(ranks) if isinstance(teams, str) else [teams]
    if sag == "r":
        counts = [d for d in counts if schedule.is_power_of_two(d)]

    def prediction(name: str, d: int) -> Prediction:
        how = {"sag": sag} if name == "spardl" else {}
        return predict(profile, name, ranks=ranks, size=size, k=k, teams=d, wire=wire, wire_dtype=wire_dtype, **how)

    options = [(name, d) for name in algorithms for d in (counts if name == "spardl" else [1])]
    return sorted((prediction(*option) for option in options), key=lambda p: p.seconds)


def plan(comm: CommLike, group: Group, question: Question, profile: ProfileLike, timeout: float) -> list[Prediction]:
    """The answers, the best one first. All ranks ask together; rank 0 decides, so that they get the same."""
    known, error = _known_profile(profile) if group.me == 0 else (None, "")
    told = gather_json(group, {"known": known is not None, "error": error}, timeout, "planning")[0]
    if told["error"]:
        raise ValueError(told["error"])
    if not told["known"]:
        known = _measured_profile(comm, group, timeout)
    ranking: list[dict[str, Any]] = []
    if known is not None and group.me == 0:
        algorithms = question.algorithms(whole_communicator=not isinstance(comm, tuple))
        asked = {name: value for name, value in asdict(question).items() if name != "algorithm"}
        ranking = [asdict(p) for p in rank_all(known, ranks=group.size, algorithms=algorithms, **asked)]
    agreed = [Prediction(**answer) for answer in gather_json(group, ranking, timeout, "planning")[0]]
    if group.me == 0:
        _log.info("%s", _story(group.size, question, agreed))
    return agreed


def _known_profile(given: ProfileLike) -> tuple[Profile | None, str]:
    """What was given, or what ``SPARDL_PROFILE`` names, if anything; and what is wrong with it."""
    given = given or environment.PROFILE.get() or None
    if given is None or isinstance(given, Profile):
        return given, ""
    try:
        return Profile.load(Path(given)), ""
    except (ValueError, OSError) as error:
        return None, f"profile: {error}"


def _measured_profile(comm: CommLike, group: Group, timeout: float) -> Profile:
    """A short measurement, once for all that are built on these ranks."""
    if group.ranks not in group.home.measured:
        group.home.measured[group.ranks] = measure(comm, SHORT_SIZES, pairs=False, timeout=timeout)
    profile: Profile = group.home.measured[group.ranks]
    return profile


def _story(ranks: int, question: Question, ranking: list[Prediction]) -> str:
    times = ", ".join(f"{p.name} {1e3 * p.seconds:.2f} ms" for p in ranking)
    return f"{ranks} ranks, n = {question.size:,}, k = {question.k:,}: chose {ranking[0].name}; predicted {times}"
