"""Stragglers on purpose, for tests and demos: how long a rank shall sleep in an iteration after it has computed.

    none                 nobody is delayed
    uniform:0:50ms       every rank, in every iteration anew, by 0 to 50 ms: the RNA paper's dynamic heterogeneity
    slow-half:50:100ms   the upper half of the ranks by 50 to 100 ms, the others not at all
    random6x             a rank takes six times as long in an iteration with probability 1 / ranks
    A+B                  both: uniform:0:50ms+slow-half:50:50ms is the paper's mixed heterogeneity, 0 to 50 ms for one
                         half of the machines and 50 to 100 ms for the other

For the slow-down at random the RNA paper refers to Hop, whose factor is six: one rank per iteration is slow on average,
however many there are.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from spardl.sync import chance

_PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}
_NUMBER = r"\d+(?:\.\d+)?"


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
    example = {"uniform": "uniform:0:50ms", "slow-half": "slow-half:50:100ms"}.get(kind, "random6x")
    try:
        if kind == "uniform":
            return Uniform(*_parse_range(times))
        if kind == "slow-half":
            return SlowHalf(Uniform(*_parse_range(times)))
        return RandomSlowdown(_parse_factor(part))
    except ValueError as error:
        raise ValueError(f"delay {part!r}: {error}, as in {example}") from None


def _parse_range(times: list[str]) -> tuple[float, float]:
    """Both ends in seconds. The unit of the longer one also holds for the shorter if that has none."""
    if len(times) != 2:
        raise ValueError(f"expected two times, the shorter first, got {len(times)}")
    (low, low_unit), (high, high_unit) = map(_parse_time, times)
    if not high_unit:
        raise ValueError(f"expected a unit after the last time ({', '.join(_PER_SECOND)}), got none")
    ends = low / _PER_SECOND[low_unit or high_unit], high / _PER_SECOND[high_unit]
    if ends[0] > ends[1]:
        raise ValueError("expected the shorter time first, got the longer one")
    return ends


def _parse_time(time: str) -> tuple[float, str]:
    match = re.fullmatch(rf"({_NUMBER})({'|'.join(_PER_SECOND)}|)", time)
    if match is None:
        raise ValueError(f"expected times >= 0 in {', '.join(_PER_SECOND)}, got {time!r}")
    return float(match[1]), match[2]


def _parse_factor(part: str) -> float:
    match = re.fullmatch(rf"random({_NUMBER})x", part)
    if match is None:
        raise ValueError("expected none, uniform:LOW:HIGH, slow-half:LOW:HIGH or random with a factor")
    if float(match[1]) < 1:
        raise ValueError(f"expected a factor of at least 1, got {match[1]}")
    return float(match[1])
