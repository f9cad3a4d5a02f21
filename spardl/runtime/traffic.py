"""Counting what a rank sends and receives."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Traffic:
    """One rank's traffic in one collective; bytes are those of whole messages."""

    rounds: int = 0  # messages waited for
    messages_sent: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    compute_seconds: float = 0.0  # in the collective itself: selecting, adding, coding; not moving, not waiting

    def add(self, other: "Traffic") -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def count_allreduce(self, nbytes: int, ranks: int) -> None:
        """One by the library, of ``nbytes``: what a bandwidth-optimal algorithm sends, in one message."""
        self.rounds += 1
        self.messages_sent += 1
        moved = 2 * (ranks - 1) * nbytes // ranks
        self.bytes_sent += moved
        self.bytes_received += moved
