"""Measures α, β and γ on a live communicator, through the same runtime that the collectives use.

So α includes what this package's own handling of a message costs, which is what a prediction has to include.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from spardl import kernels
from spardl.agreement import gather_json, open_channel, prepare_sums
from spardl.cost.fit import fit_line
from spardl.cost.kernels import kernel_costs
from spardl.cost.profile import Line, Profile
from spardl.effects import Allreduce, Bytes, Collective, Exchange, Recv, Send
from spardl.runtime.channel import Channel
from spardl.runtime.group import CommLike, Group, resolve
from spardl.runtime.library import MPI
from spardl.runtime.limit import time_limit
from spardl.runtime.mpi import Task

SIZES = (*(8 * 8**i for i in range(8)), 64 * 2**20)  # 8 B to 16 MB in factors of 8, and 64 MB
SHORT_SIZES = (64, 4096, 2**18, 2**22)  # enough for a plan, in a few seconds
_SECONDS_EACH = 0.05  # about how long to repeat a size
_REPEATS = 5
_PATIENCE = 2.0  # seconds for all repeats of a size, but two there will be

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
    return Profile(group.size, lines["exchange"], lines["ping"], sums, between, gamma, points)


# -- messages ----------------------------------------------------------------------------------------------------------

Pattern = Callable[[Group, Bytes, int], Collective[None]]


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


class Stopwatch:
    """Times patterns of messages on all ranks together."""

    def __init__(self, group: Group, timeout: float) -> None:
        self.group, self._timeout = group, timeout
        self.channel: Channel = open_channel(group, dict, timeout, "measuring")

    def time(self, size: int, pattern: Pattern, messages: int = 1) -> list[float]:
        """Seconds per message, of several repeats; each is the slowest rank's. ``messages``: in turn, per count."""
        if self.group.size == 1:
            return [0.0] * _REPEATS
        payload = np.zeros(size, np.uint8)
        self._run(pattern, payload, 1)
        once = self._run(pattern, payload, 1)
        count = int(np.clip(_SECONDS_EACH / max(once, 1e-7), 1, 100))
        repeats = int(np.clip(_PATIENCE / max(once * count, 1e-7), 2, _REPEATS))
        return [self._run(pattern, payload, count) / messages for _ in range(repeats)]

    def hosts(self) -> list[str]:
        """By rank."""
        return gather_json(self.group, MPI.Get_processor_name(), self._timeout, "measuring")

    def _run(self, pattern: Pattern, payload: Bytes, count: int) -> float:
        gather_json(self.group, None, self._timeout, "measuring")  # so that all begin together
        started = time.perf_counter()
        Task(self.channel, pattern(self.group, payload, count), self._timeout, "measuring").wait()
        elapsed = time.perf_counter() - started
        return float(max(gather_json(self.group, elapsed, self._timeout, "measuring"))) / count


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
