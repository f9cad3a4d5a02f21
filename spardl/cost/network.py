"""A measured profile as a network in virtual time."""

from bisect import bisect_right
from dataclasses import dataclass
from statistics import median

from spardl.cost.profile import Line, Profile
from spardl.runtime.network import Busy, Network, Port, nanoseconds


def network_of(profile: Profile, ranks: int | None = None) -> Network:
    """Every rank on a host of its own, by default as many as were measured.

    A message costs what was measured when nobody else talked, or when all did, and between these when some do. What it
    costs whatever its length counts as work of both ends, not as latency: a profile cannot tell them apart. So a rank
    that sends many messages at once pays for each, which is what the cost model says as well.
    """
    count = profile.ranks if ranks is None else ranks
    together = _measured(profile, "exchange", profile.exchange)
    return Network(
        tuple(range(count)),
        (together,) * count,
        alone=_measured(profile, "ping", profile.ping),
        library=_measured(profile, "allreduce", profile.allreduce),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Straight lines between the sizes that were measured, and on beyond the last; in bytes and nanoseconds."""

    sizes: tuple[int, ...]
    times: tuple[float, ...]

    def busy(self, nbytes: int) -> int:
        left = min(max(bisect_right(self.sizes, nbytes) - 1, 0), len(self.sizes) - 2)
        (a, b), (x, y) = self.sizes[left : left + 2], self.times[left : left + 2]
        return round(x + (y - x) * (max(nbytes, a) - a) / (b - a))


def _measured(profile: Profile, kind: str, line: Line) -> Busy:
    """The medians of what was measured, if that is there: small messages are often better than the line."""
    times: dict[int, list[float]] = {}
    for what, size, seconds in profile.points:
        if what == kind:
            times.setdefault(size, []).append(seconds)
    if len(times) < 2:
        return Port(nanoseconds(line.alpha), line.beta * 1e9)
    sizes = sorted(times)
    medians = [median(times[size]) * 1e9 for size in sizes]
    return Curve(tuple(sizes), tuple(max(medians[: place + 1]) for place in range(len(sizes))))
