"""Measures α, β and γ on a live communicator, through the same runtime that the collectives use.

So α includes what this package's own handling of a message costs, which is what a prediction has to include.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from spardl import kernels
from spardl.agreement import gather_json
from spardl.cost.fit import fit_line
from spardl.cost.profile import Line, Profile
from spardl.effects import Bytes, Collective, Exchange, Recv, Send
from spardl.kernels.api import Kernels
from spardl.runtime.group import CommLike, Group, resolve
from spardl.runtime.mpi import Task, default_timeout, shared_channel

SIZES = (*(8 * 8**i for i in range(8)), 64 * 2**20)  # 8 B to 16 MB in factors of 8, and 64 MB
SHORT_SIZES = (64, 4096, 2**18, 2**22)  # enough for a plan, in well under a second on most networks
_SECONDS_EACH = 0.05  # about how long to repeat a size
_REPEATS = 5

Report = Callable[[str, int, int], object]  # what, done, of


def measure(
    comm: CommLike,
    sizes: Sequence[int] = SIZES,
    *,
    timeout: float | None = None,
    progress: Report = lambda what, done, total: None,
) -> Profile:
    """All ranks call this together and get the same profile."""
    seconds = default_timeout() if timeout is None else timeout
    group = resolve(comm, seconds)
    points: list[tuple[str, int, float]] = []
    for number, size in enumerate(sizes):
        points += [("exchange", size, t) for t in _timed(group, size, _all_at_once, seconds)]
        points += [("ping", size, t) for t in _timed(group, size, _ping(0, group.size - 1), seconds)]
        progress("messages", number + 1, len(sizes))
    lines = {kind: _line(kind, points) for kind in ("exchange", "ping")}
    pairs = _between_hosts(group, sizes, seconds)
    gamma = _median_of_ranks(group, kernel_costs(kernels.load()), seconds)
    progress("kernels", 1, 1)
    return Profile(group.size, lines["exchange"], lines["ping"], pairs, gamma, points)


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


def _timed(group: Group, size: int, pattern: Pattern, timeout: float) -> list[float]:
    """Seconds per message, of several repeats; each is the slowest rank's."""
    if group.size == 1:
        return [0.0] * _REPEATS
    payload = np.zeros(size, np.uint8)
    both_ways = 1 if pattern is _all_at_once else 2

    def run(count: int) -> float:
        gather_json(group, None, timeout, "measuring")  # so that all begin together
        started = time.perf_counter()
        Task(shared_channel(group), pattern(group, payload, count), timeout, "measuring").wait()
        elapsed = time.perf_counter() - started
        return float(max(gather_json(group, elapsed, timeout, "measuring"))) / (count * both_ways)

    run(1)
    count = int(np.clip(_SECONDS_EACH / max(run(1), 1e-7), 1, 100))
    return [run(count) for _ in range(_REPEATS)]


def _line(kind: str, points: Sequence[tuple[str, int, float]]) -> Line:
    chosen = [(size, seconds) for what, size, seconds in points if what == kind]
    if all(seconds == 0 for _, seconds in chosen):
        return Line(0.0, 0.0)  # one rank: there are no messages
    return fit_line(*zip(*chosen, strict=True))


def _between_hosts(group: Group, sizes: Sequence[int], timeout: float) -> dict[str, Line]:
    """A line for each pair of hosts, between their first ranks; empty if there is one host only."""
    names: list[str] = gather_json(group, _host(), timeout, "measuring")
    first = {name: rank for rank, name in reversed(list(enumerate(names)))}
    hosts = sorted(first, key=lambda name: first[name])
    pairs = [(a, b) for i, a in enumerate(hosts) for b in hosts[i + 1 :]]
    lines = {}
    for a, b in pairs:
        talk = _ping(first[a], first[b])
        measured = [("ping", size, t) for size in sizes for t in _timed(group, size, talk, timeout)]
        lines[f"{a}–{b}"] = _line("ping", measured)
    return lines


def _host() -> str:
    from mpi4py import MPI

    return MPI.Get_processor_name()


# -- kernels -----------------------------------------------------------------------------------------------------------


def kernel_costs(chosen: Kernels, size: int = 2**21, density: float = 0.01, repeats: int = 5) -> dict[str, float]:
    """Seconds per element (accumulate) or per entry (the others), of the median repeat."""
    rng = np.random.default_rng(0)
    count = max(1, int(size * density))
    grad, residual, acc = (rng.standard_normal(size, dtype=np.float32) for _ in range(3))
    floor = np.quantile(np.abs(grad + residual), 1 - 1.1 * density).astype(np.float32)
    bounds, starts = np.array([0, size]), np.array([0, 4 * count])
    candidates = np.empty(4 * count, np.int32), np.empty(4 * count, np.float32)
    a, b = (np.sort(rng.choice(size, count, replace=False)).astype(np.int32) for _ in range(2))
    values = rng.standard_normal(count, dtype=np.float32)
    bits = 6
    low, high = chosen.pack(a, 0, bits)
    empty = a[:0], values[:0]
    floors = np.array([floor], np.float32)
    jobs: dict[str, tuple[int, Callable[[], object]]] = {
        "accumulate": (size, lambda: chosen.accumulate(grad, residual, acc, bounds, floors, starts, *candidates)),
        "select": (count, lambda: chosen.select(a, values, *empty, count // 2, 0.0)),
        "pack": (count, lambda: chosen.pack(a, 0, bits)),
        "unpack": (count, lambda: chosen.unpack(low, high, count, 0, bits, np.dtype(np.int32))),
        "overlay": (count, lambda: chosen.overlay(*empty, acc, b, values)),
        "settle": (count, lambda: chosen.overwrite_where(acc, a, b, values)),
        "add": (2 * count, lambda: chosen.add(a, values, b, values)),
        "add_dense": (size, lambda: np.add(grad, residual, out=acc)),
    }
    costs = {}
    for name, (elements, job) in jobs.items():
        job()
        taken = []
        for _ in range(repeats):
            started = time.perf_counter()
            job()
            taken.append(time.perf_counter() - started)
        costs[name] = float(np.median(taken)) / elements
    return costs


def _median_of_ranks(group: Group, mine: dict[str, float], timeout: float) -> dict[str, float]:
    everyone = gather_json(group, mine, timeout, "measuring kernels")
    return {name: float(np.median([costs[name] for costs in everyone])) for name in mine}
