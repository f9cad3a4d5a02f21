"""What synchronisation has cost so far."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """This rank's totals since ``distribute``."""

    steps: int = 0  # synchronisations that succeeded
    skipped: int = 0  # steps that all ranks skipped, for a non-finite gradient under AMP
    bytes_sent: int = 0
    bytes_received: int = 0
    dense_bytes: int = 0  # what the best dense all-reduce would have sent
    messages_sent: int = 0
    rounds: int = 0
    select_seconds: float = 0.0  # selecting, adding and coding
    communicate_seconds: float = 0.0  # from the first collective's start to the last one's end, backward included
    wait_seconds: float = 0.0  # the part of it in which nothing else was done
    density: float = 0.0  # entries in the results over elements, of all buckets
    residual_norm: float = 0.0  # of what this rank still owes, now

    @property
    def compression(self) -> float:
        """How many times fewer bytes were sent than dense would have."""
        return self.dense_bytes / self.bytes_sent if self.bytes_sent else 1.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"compression": self.compression}
