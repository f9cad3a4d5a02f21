"""Contenders take turns, so that a drifting machine is unfair to none of them."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAST_WARMUP, LEAST_REPEATS = 1, 2  # also of what takes longer than it may

Agree = Callable[[list[bool]], list[bool]]


def _nothing(*_: object) -> None:
    pass


def _as_it_is(decision: list[bool]) -> list[bool]:
    return decision


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to time; ``prepare`` is called before every run and not timed."""

    run: Callable[[], object]
    prepare: Callable[[], object] = _nothing


def interleaved(
    candidates: Sequence[Candidate],
    repeats: int,
    warmup: int,
    *,
    max_seconds: float = math.inf,
    agree: Agree = _as_it_is,
    before_each: Callable[[], object] = _nothing,
    tell: Callable[[int, int], object] = _nothing,
) -> list[list[float]]:
    """Seconds of every repeat of every candidate, in turns.

    All are prepared before the first one's turn: whatever preparing leaves in the cache is gone when it counts.
    Whoever has used ``max_seconds`` leaves, from warming up and from being timed; where several ranks time the same,
    ``agree`` makes one decision of theirs. ``tell`` hears between turns how many of how many are over.
    """

    def turns(most: int, least: int, before: int) -> list[list[float]]:
        seconds: list[list[float]] = [[] for _ in candidates]
        while any(going := agree([goes_on(record, most, least, max_seconds) for record in seconds])):
            field = [both for both, goes in zip(zip(candidates, seconds, strict=True), going, strict=True) if goes]
            for candidate, _ in field:
                candidate.prepare()
            for candidate, record in field:
                before_each()
                started = time.perf_counter()
                candidate.run()
                record.append(time.perf_counter() - started)
            tell(before + max(map(len, seconds)), warmup + repeats)
        return seconds

    turns(warmup, LEAST_WARMUP, 0)
    return turns(repeats, LEAST_REPEATS, warmup)


def goes_on(seconds: Sequence[float], most: int, least: int, max_seconds: float) -> bool:
    """Whether to run once more what has taken ``seconds`` so far."""
    return len(seconds) < most and (len(seconds) < least or sum(seconds) < max_seconds)


def timed(function: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Seconds of every repeat of one function."""
    return interleaved([Candidate(function)], repeats, warmup)[0]


def times(seconds: Sequence[float]) -> dict[str, Any]:
    """The columns that every timed row has."""
    return {"min_ms": 1e3 * min(seconds), "median_ms": 1e3 * float(np.median(seconds))}


def ratios(seconds: Sequence[float], to: Sequence[float]) -> dict[str, Any]:
    """Of the medians and of the minima. Where the two differ much, the machine was busy: believe neither."""
    return {"ratio": float(np.median(seconds) / np.median(to)), "ratio_of_minima": min(seconds) / min(to)}
