"""Stragglers on purpose, for tests and demos: how long a rank shall sleep in an iteration after it has computed.

    none                 nobody is delayed
    uniform:0:50ms       every rank, in every iteration anew, by 0 to 50 ms: the RNA paper's dynamic heterogeneity
    slow-half:50:100ms   the upper half of the ranks by 50 to 100 ms, the others not at all
    random6x             a rank takes six times as long in an iteration with probability 1 / ranks
    slow:0.2:2x          the last fifth of the ranks takes twice as long, in every iteration
    A+B                  both: uniform:0:50ms+slow-half:50:50ms is the paper's mixed heterogeneity, 0 to 50 ms for one
                         half of the machines and 50 to 100 ms for the other

For the slow-down at random the RNA paper refers to Hop, whose factor is six: one rank per iteration is slow on average,
however many there are.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from spardl import chance
from spardl.quantities import NUMBER, PER_SECOND, parse_factor, split_time


class Part(Protocol):
    """One cause of delay. ``draw`` is the random number from 0 to 1 that is this rank's in this iteration."""

    def seconds(self, draw: float, rank: int, ranks: int, compute_seconds: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Uniform:
    low: float
    high: float

    def seconds(self, draw: float, rank: int, ranks: int, compute_seconds: float) -> float:
        return self.low + draw * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class SlowHalf:
    """With an odd number of ranks, the one in the middle is fast."""

    delay: Part

    def seconds(self, draw: float, rank: int, ranks: int, compute_seconds: float) -> float:
        slow = rank >= ranks - ranks // 2
        return self.delay.seconds(draw, rank, ranks, compute_seconds) if slow else 0.0


@dataclass(frozen=True, slots=True)
class RandomSlowdown:
    factor: float

    def seconds(self, draw: float, rank: int, ranks: int, compute_seconds: float) -> float:
        return (self.factor - 1) * compute_seconds if draw * ranks < 1 else 0.0


@dataclass(frozen=True, slots=True)
class SlowShare:
    """Rounded to whole ranks."""

    share: float
    factor: float

    def seconds(self, draw: float, rank: int, ranks: int, compute_seconds: float) -> float:
        return (self.factor - 1) * compute_seconds if rank >= ranks - round(self.share * ranks) else 0.0


@dataclass(frozen=True, slots=True)
class Delay:
    """The sum of its parts; each part's draws are independent of the others' and between ranks and iterations."""

    parts: tuple[Part, ...]
    seed: int = 0

    def seconds(self, rank: int, ranks: int, iteration: int, compute_seconds: float) -> float:
        """How much longer ``rank`` takes in ``iteration``, which it computed in ``compute_seconds``.

        Only a slow-down by a factor looks at the last, yet all ask for it, so that one delay can replace another.
        """
        total = 0.0
        for number, part in enumerate(self.parts):
            draw = chance.fraction("delay", self.seed, number, rank, iteration)
            total += part.seconds(draw, rank, ranks, compute_seconds)
        return total


# -- from text ---------------------------------------------------------------------------------------------------------


def parse_delay(text: str, seed: int = 0) -> Delay:
    """The delay that ``text`` describes, in one of the forms above."""
    if text.strip() == "none":
        return Delay((), seed)
    return Delay(tuple(_parse_part(part.strip()) for part in text.split("+")), seed)


def _parse_part(part: str) -> Part:
    kind, *times = part.split(":")
    example = {"uniform": "uniform:0:50ms", "slow-half": "slow-half:50:100ms", "slow": "slow:0.2:2x"}
    try:
        if kind == "uniform":
            return Uniform(*parse_range(times))
        if kind == "slow-half":
            return SlowHalf(Uniform(*parse_range(times)))
        if kind == "slow":
            return SlowShare(*_parse_share(times))
        return RandomSlowdown(_parse_slowdown(part))
    except ValueError as error:
        raise ValueError(f"delay {part!r}: {error}, as in {example.get(kind, 'random6x')}") from None


def parse_range(times: list[str]) -> tuple[float, float]:
    """Both ends in seconds. The unit of the longer one also holds for the shorter if that has none."""
    if len(times) != 2:
        raise ValueError(f"expected two times, the shorter first, got {len(times)}")
    (low, low_unit), (high, high_unit) = map(split_time, times)
    if not high_unit:
        raise ValueError(f"expected a unit after the last time ({', '.join(PER_SECOND)}), got none")
    ends = low / PER_SECOND[low_unit or high_unit], high / PER_SECOND[high_unit]
    if ends[0] > ends[1]:
        raise ValueError("expected the shorter time first, got the longer one")
    return ends


def _parse_share(parts: list[str]) -> tuple[float, float]:
    if len(parts) != 2 or re.fullmatch(NUMBER, parts[0]) is None or not 0 <= float(parts[0]) <= 1:
        raise ValueError("expected a share of the ranks from 0 to 1 and a factor")
    return float(parts[0]), parse_factor(parts[1])


def _parse_slowdown(part: str) -> float:
    if re.fullmatch(rf"random{NUMBER}x", part) is None:
        raise ValueError(
            "expected none, uniform:LOW:HIGH, slow-half:LOW:HIGH, slow:SHARE:FACTOR or random with a factor"
        )
    return parse_factor(part.removeprefix("random"))
