"""Which ranks synchronise with each other when some are slower for good: hierarchical RNA's groups."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction


def group_by_speed(seconds: Sequence[float]) -> list[tuple[int, ...]]:
    """Ranks in groups of similar speed, from fast to slow; ``seconds`` is what an iteration takes on each rank.

    A group is split while its spread ζ, the slowest rank's time less the fastest's, exceeds the mean v of its times:
    ranks that take longer than v go into a slower group, the others into a faster one. So two halves of the ranks part
    when one takes over three times as long as the other, and a lone straggler leaves many others when it takes a little
    over twice as long as they do. The same numbers give the same groups on every rank.
    """
    if len(seconds) == 0:
        raise ValueError("group_by_speed: seconds: expected the time of at least one rank, got none")
    for rank, time in enumerate(seconds):
        if not (math.isfinite(time) and time >= 0):
            raise ValueError(f"group_by_speed: seconds: expected finite numbers >= 0, got {time} for rank {rank}")
    # Exact, so that rounding can neither empty a group nor make a sum overflow.
    return list(_split([(rank, Fraction(float(time))) for rank, time in enumerate(seconds)]))


def _split(timed_ranks: list[tuple[int, Fraction]]) -> Iterator[tuple[int, ...]]:
    times = [time for _, time in timed_ranks]
    # v is the group's own mean: by the mean of all ranks, a slow group would be slow altogether and never come apart.
    mean = sum(times, Fraction(0)) / len(times)
    if max(times) - min(times) <= mean:
        yield tuple(rank for rank, _ in timed_ranks)
        return
    yield from _split([(rank, time) for rank, time in timed_ranks if time <= mean])
    yield from _split([(rank, time) for rank, time in timed_ranks if time > mean])
