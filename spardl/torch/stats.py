"""What synchronisation has cost so far."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spardl.runtime.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Stats:
    """This rank's totals since ``distribute``."""

    steps: int = 0  # synchronisations that succeeded; RNA: rounds that were applied
    skipped: int = 0  # steps that all ranks skipped: a non-finite gradient under AMP, a round of RNA without gradients
    bytes_sent: int = 0
    bytes_received: int = 0
    dense_bytes: int = 0  # what the best dense all-reduce would have sent
    messages_sent: int = 0
    rounds: int = 0
    select_seconds: float = 0.0  # selecting, adding and coding
    # From the first collective's start to the last one's end, backward included; RNA: in rounds and fetching results.
    communicate_seconds: float = 0.0
    wait_seconds: float = 0.0  # the part of it in which nothing else was done
    density: float = 0.0  # entries in the results over elements, of all buckets
    residual_norm: float = 0.0  # of what this rank still owes, now

    def plus(
        self, traffics: Sequence[Traffic], *, dense_bytes: int, communicate_seconds: float, wait_seconds: float
    ) -> "Stats":
        """With one more step, whose collectives had these ``traffics``."""
        return replace(
            self,
            steps=self.steps + 1,
            bytes_sent=self.bytes_sent + sum(traffic.bytes_sent for traffic in traffics),
            bytes_received=self.bytes_received + sum(traffic.bytes_received for traffic in traffics),
            dense_bytes=self.dense_bytes + dense_bytes,
            messages_sent=self.messages_sent + sum(traffic.messages_sent for traffic in traffics),
            rounds=self.rounds + sum(traffic.rounds for traffic in traffics),
            select_seconds=self.select_seconds + sum(traffic.compute_seconds for traffic in traffics),
            communicate_seconds=self.communicate_seconds + communicate_seconds,
            wait_seconds=self.wait_seconds + wait_seconds,
        )

    @property
    def compression(self) -> float:
        """How many times fewer bytes were sent than dense would have."""
        return self.dense_bytes / self.bytes_sent if self.bytes_sent else 1.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"compression": self.compression}
