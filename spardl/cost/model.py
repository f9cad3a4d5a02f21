"""How long a reduce takes: its rounds and bytes at α and β, and its kernels at γ."""

from collections.abc import Sequence
from dataclasses import dataclass

from spardl.collectives.spardl import choose_sag
from spardl.cost.profile import Profile
from spardl.cost.traffic import Message, Setting, Transfer, transfers
from spardl.cost.work import beside_first_round, kernel_seconds, work
from spardl.effects import FRONT_BYTES


@dataclass(frozen=True, slots=True)
class Prediction:
    """One reduce of the busiest rank."""

    algorithm: str
    teams: int
    sag: str
    rounds: int
    bytes_sent: int
    message_seconds: float
    kernel_seconds: float
    seconds: float  # less than the sum of both where messages travel while kernels run

    @property
    def name(self) -> str:
        """E.g. ``spardl:2`` for two teams."""
        return self.algorithm if self.teams == 1 else f"{self.algorithm}:{self.teams}"


def predict(
    profile: Profile,
    algorithm: str,
    *,
    ranks: int,
    size: int,
    k: int,
    teams: int = 1,
    sag: str = "auto",
    wire: str = "auto",
    wire_dtype: str = "same",
) -> Prediction:
    """What ``algorithm`` would take on a cluster with this profile, for float32 and selections at random places."""
    sag = choose_sag(sag, teams)
    coded = 4 if wire_dtype == "same" else 2
    setting = Setting(ranks, size, min(k, size), teams, sag, coded=coded, wire=wire)
    rounds = transfers(algorithm, setting)
    messages = _message_seconds(profile, algorithm, setting, rounds)
    kernels = kernel_seconds(work(algorithm, setting, rounds), profile.gamma)
    beside = kernel_seconds(beside_first_round(algorithm, setting), profile.gamma)
    hidden = min(messages[0], beside) if messages else 0.0
    sent = sum(_bytes(t.sent, setting) for t in rounds)
    total = sum(messages) + kernels - hidden
    return Prediction(algorithm, teams, sag, len(rounds), sent, sum(messages), kernels, total)


def _bytes(message: Message | None, setting: Setting) -> int:
    return 0 if message is None else FRONT_BYTES + message.bytes(setting)


def _message_seconds(profile: Profile, algorithm: str, setting: Setting, rounds: Sequence[Transfer]) -> list[float]:
    """By round. The larger of the two messages counts: links carry both at once."""
    seconds = [
        (profile.exchange if t.sent and t.received else profile.ping)(max(_bytes(m, setting) for m in t.messages))
        for t in rounds
    ]
    if algorithm == "dense_mpi" and rounds:  # nobody knows how the library does it, so it was measured as it is
        seconds[-1] = profile.allreduce(4 * setting.size)
    return seconds
