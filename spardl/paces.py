"""How long a rank computes in an iteration, for training in virtual time.

    constant:100ms        always
    uniform:80:120ms      every rank, in every iteration anew
    lognormal:100ms:0.3   likewise: the median, and the standard deviation of the logarithm
    trace:paces.json      what was recorded: a JSON list with a list of seconds for every rank
    A+DELAY               and a delay of spardl.delays on top: constant:100ms+random6x, uniform:80:120ms+slow:0.2:2x

A recorded trace starts again when it ends, and is dealt out to more ranks than it has in turns.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Protocol

from spardl import chance
from spardl.delays import Delay, Uniform, parse_delay, parse_range
from spardl.quantities import NUMBER, parse_time

_LONGEST = 1e6  # seconds of an iteration that are believed


class Base(Protocol):
    """``draw`` is the random number from 0 to 1 that is this rank's in this iteration."""

    def seconds(self, draw: float, rank: int, iteration: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Between:
    """From the shorter to the longer of two times, which may be the same."""

    times: Uniform

    def seconds(self, draw: float, rank: int, iteration: int) -> float:
        return self.times.seconds(draw, rank, 0, 0.0)


@dataclass(frozen=True, slots=True)
class LogNormal:
    median: float
    deviation: float

    def seconds(self, draw: float, rank: int, iteration: int) -> float:
        inside = min(max(draw, 2.0**-54), 1 - 2.0**-53)  # at 0 and 1 it would be infinitely short or long
        return self.median * math.exp(self.deviation * NormalDist().inv_cdf(inside))


@dataclass(frozen=True, slots=True)
class Recorded:
    by_rank: tuple[tuple[float, ...], ...]

    def seconds(self, draw: float, rank: int, iteration: int) -> float:
        own = self.by_rank[rank % len(self.by_rank)]
        return own[iteration % len(own)]


@dataclass(frozen=True, slots=True)
class Pace:
    """A pure function of seed, rank and iteration."""

    base: Base
    delay: Delay
    seed: int = 0

    def seconds(self, rank: int, ranks: int, iteration: int) -> float:
        own = self.base.seconds(chance.fraction("pace", self.seed, rank, iteration), rank, iteration)
        return own + self.delay.seconds(rank, ranks, iteration, own)


# -- from text ---------------------------------------------------------------------------------------------------------


def parse_pace(text: str, seed: int = 0) -> Pace:
    """The pace that ``text`` describes, in one of the forms above."""
    base, _, delay = text.strip().partition("+")
    return Pace(_parse_base(base.strip()), parse_delay(delay or "none", seed), seed)


_EXAMPLES = {"uniform": "uniform:80:120ms", "lognormal": "lognormal:100ms:0.3", "trace": "trace:paces.json"}


def _parse_base(base: str) -> Base:
    kind, *parts = base.split(":")
    try:
        if kind == "uniform":
            return Between(Uniform(*parse_range(parts)))
        if kind == "lognormal":
            return _parse_lognormal(parts)
        if kind == "trace":
            return load_trace(Path(":".join(parts)))
        if kind != "constant" or len(parts) != 1:
            raise ValueError("expected constant:TIME, uniform:LOW:HIGH, lognormal:MEDIAN:DEVIATION or trace:FILE")
        return Between(Uniform(*[parse_time(parts[0])] * 2))
    except ValueError as error:
        raise ValueError(f"pace {base!r}: {error}, as in {_EXAMPLES.get(kind, 'constant:100ms')}") from None


def _parse_lognormal(parts: list[str]) -> LogNormal:
    if len(parts) != 2 or re.fullmatch(NUMBER, parts[1]) is None:
        raise ValueError("expected a median and a deviation")
    return LogNormal(parse_time(parts[0]), float(parts[1]))


def load_trace(path: Path) -> Recorded:
    """Raises ValueError unless the file has a number of seconds for every iteration of every rank."""
    try:
        told: Any = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(told, list) or not told or not all(isinstance(own, list) and own for own in told):
        raise ValueError(f"{path}: expected a list with a list of seconds for every rank")
    for rank, own in enumerate(told):
        for iteration, seconds in enumerate(own):
            if type(seconds) not in (int, float) or not 0 <= seconds <= _LONGEST:
                where = f"iteration {iteration} of rank {rank}"
                raise ValueError(f"{path}: expected seconds from 0 to {_LONGEST:g}, got {seconds!r} in {where}")
    return Recorded(tuple(tuple(map(float, own)) for own in told))
