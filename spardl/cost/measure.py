"""Measures α, β and γ on a live communicator, through the same runtime that the collectives use.

So α includes what this package's own handling of a message costs, which is what a prediction has to include.
"""

from collections.abc import Callable, Sequence

import numpy as np

from spardl import kernels
from spardl.agreement import gather_json, prepare_sums
from spardl.cost.fit import fit_line
from spardl.cost.in_place import put_right
from spardl.cost.kernels import kernel_costs
from spardl.cost.profile import Line, Profile
from spardl.cost.stopwatch import Pattern, Stopwatch
from spardl.effects import Allreduce, Bytes, Collective, Exchange, Recv, Send
from spardl.runtime.group import CommLike, Group, resolve
from spardl.runtime.limit import time_limit

SIZES = (*(8 * 8**i for i in range(8)), 64 * 2**20)  # 8 B to 16 MB in factors of 8, and 64 MB
SHORT_SIZES = (64, 4096, 2**18, 2**22)  # enough for a plan, in a few seconds

Report = Callable[[str, int, int], object]  # what, done, of


def measure(
    comm: CommLike,
    sizes: Sequence[int] = SIZES,
    *,
    pairs: bool = True,
    timeout: float | None = None,
    progress: Report = lambda what, done, total: None,
) -> Profile:
    """All ranks call this together and get the same profile. ``pairs``: also between every two hosts."""
    seconds = time_limit(timeout)
    group = resolve(comm, seconds)
    stopwatch = Stopwatch(group, seconds)
    patterns = {"exchange": _all_at_once, "ping": _ping(0, group.size - 1)}
    if not isinstance(comm, tuple):  # the library's own needs a whole communicator
        patterns["allreduce"] = _library_sum
        prepare_sums(stopwatch.channel, seconds)
    points: list[tuple[str, int, float]] = []
    for number, size in enumerate(sizes):
        for kind, pattern in patterns.items():
            points += [(kind, size, t) for t in stopwatch.time(size, pattern, 2 if kind == "ping" else 1)]
        progress("messages", number + 1, len(sizes))
    lines = {kind: _line(kind, points) for kind in patterns}
    between = _between_hosts(stopwatch, sizes) if pairs else {}
    gather_json(group, None, seconds, "measuring")  # kernels are timed with all ranks at work, as in a reduce
    gamma = _median_of_ranks(group, kernel_costs(kernels.load()), seconds)
    progress("kernels", 1, 1)
    sums = lines.get("allreduce", lines["exchange"])
    return put_right(Profile(group.size, lines["exchange"], lines["ping"], sums, between, gamma, points), stopwatch)


# -- messages ----------------------------------------------------------------------------------------------------------


def _all_at_once(group: Group, payload: Bytes, count: int) -> Collective[None]:
    """Rounds as in a collective: everyone sends to the right and receives from the left."""
    for _ in range(count):
        yield Exchange((group.me + 1) % group.size, payload, (group.me - 1) % group.size)


def _ping(first: int, second: int) -> Pattern:
    """There and back again, twice per count, while the others are silent."""

    def pattern(group: Group, payload: Bytes, count: int) -> Collective[None]:
        if group.me == first and first != second:
            for _ in range(count):
                yield Send(second, payload)
                yield Recv(second)
        elif group.me == second and first != second:
            for _ in range(count):
                yield Recv(first)
                yield Send(first, payload)

    return pattern


def _library_sum(group: Group, payload: Bytes, count: int) -> Collective[None]:
    values = payload.view(np.float32)
    out = np.empty_like(values)
    for _ in range(count):
        yield Allreduce(values, out)


def _line(kind: str, points: Sequence[tuple[str, int, float]]) -> Line:
    chosen = [(size, seconds) for what, size, seconds in points if what == kind]
    if all(seconds == 0 for _, seconds in chosen):
        return Line(0.0, 0.0)  # one rank: there are no messages
    return fit_line(*zip(*chosen, strict=True))


def _between_hosts(stopwatch: Stopwatch, sizes: Sequence[int]) -> dict[str, Line]:
    """A line for each pair of hosts, between their first ranks; empty if there is one host only."""
    names = stopwatch.hosts()
    first = {name: rank for rank, name in reversed(list(enumerate(names)))}
    hosts = sorted(first, key=lambda name: first[name])
    pairs = [(a, b) for i, a in enumerate(hosts) for b in hosts[i + 1 :]]
    lines = {}
    for a, b in pairs:
        talk = _ping(first[a], first[b])
        measured = [("ping", size, t) for size in sizes for t in stopwatch.time(size, talk, 2)]
        lines[f"{a}–{b}"] = _line("ping", measured)
    return lines


def _median_of_ranks(group: Group, mine: dict[str, float], timeout: float) -> dict[str, float]:
    everyone = gather_json(group, mine, timeout, "measuring kernels")
    return {name: float(np.median([costs[name] for costs in everyone])) for name in mine}
