"""When a round begins: a policy looks at who is ready, and says whether that is enough."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from spardl.protocols.rna.probing import draw_probes


class Policy(Protocol):
    """All are asked again whenever another rank has become ready, and see the same round's number each time."""

    def begins(self, round: int, ready: Collection[int], working: Sequence[int]) -> bool:
        """``working``: ranks that may still bring gradients. ``ready``: those of them that have one no round has taken.

        Asked with every note, so what it costs should not grow with the number of ranks. Places in ``working`` change
        only when a rank leaves it or comes back.
        """


@dataclass(frozen=True, slots=True)
class PowerOfChoices:
    """RNA: a round waits for the first of ``q`` ranks that are drawn for it at random."""

    q: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.q < 1:
            raise ValueError(f"power_of_choices: expected q of at least 1, got {self.q}")

    def begins(self, round: int, ready: Collection[int], working: Sequence[int]) -> bool:
        # Drawn among those that may answer: who has nothing more to bring would be waited for in vain.
        return any(working[place] in ready for place in draw_probes(self.seed, round, len(working), self.q))


@dataclass(frozen=True, slots=True)
class Majority:
    """Eager-SGD's: a round waits for one rank that is drawn at random, so that half of them are ready on average."""

    seed: int = 0

    def begins(self, round: int, ready: Collection[int], working: Sequence[int]) -> bool:
        return PowerOfChoices(1, self.seed).begins(round, ready, working)


@dataclass(frozen=True, slots=True)
class Solo:
    """Eager-SGD's: a round begins with whoever is ready first."""

    def begins(self, round: int, ready: Collection[int], working: Sequence[int]) -> bool:
        return bool(ready)


@dataclass(frozen=True, slots=True)
class All:
    """Bulk-synchronous: a round waits for everyone."""

    def begins(self, round: int, ready: Collection[int], working: Sequence[int]) -> bool:
        return len(ready) == len(working)
