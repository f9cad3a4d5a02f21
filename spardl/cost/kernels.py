"""γ: what the kernels cost, in seconds per element or entry, and what a call and a frame cost beyond that."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spardl import schedule
from spardl.collectives.spardl import SparDL
from spardl.kernels.api import Kernels
from spardl.runtime.loopback import loopback
from spardl.selection import require_finite_gradient
from spardl.wire import Codec

_SECONDS_EACH = 0.03  # long enough for ranks that share a core to get in each other's way, as they will in a reduce
_REPEATS = 3
PER_CALL = ("call", "round", "frame")
_LONG = 8  # times the size: gradients, residuals and accumulators are not in a cache when a reduce begins


def kernel_costs(chosen: Kernels, size: int = 2**21, density: float = 0.01) -> dict[str, float]:
    """By kernel. ``call`` is per reduce, ``round`` per message waited for and ``frame`` per block: what is neither
    elements nor entries. In one process nobody waits.
    """
    rng = np.random.default_rng(0)
    count = max(1, int(size * density))
    short, other = (rng.standard_normal(size, dtype=np.float32) for _ in range(2))
    floor = np.quantile(np.abs(short + other), 1 - 1.1 * density).astype(np.float32)
    grad, residual = np.tile(short, _LONG), np.tile(other, _LONG)
    acc = grad + residual
    bounds, starts = np.array([0, len(acc)]), np.array([0, 4 * count * _LONG])
    candidates = np.empty(starts[1], np.int32), np.empty(starts[1], np.float32)
    a, b = (np.sort(rng.choice(size, count, replace=False)).astype(np.int32) for _ in range(2))
    values = rng.standard_normal(count, dtype=np.float32)
    bits = 6
    low, high = chosen.pack(a, 0, bits)
    empty = a[:0], values[:0]
    floors = np.array([floor], np.float32)
    jobs: dict[str, tuple[int, Callable[[], object]]] = {
        "accumulate": (
            len(acc),
            lambda: chosen.accumulate([0], grad, residual, acc, bounds, floors, starts, *candidates),
        ),
        "select": (count, lambda: chosen.select(a, values, *empty, count // 2, 0.0)),
        "pack": (count, lambda: chosen.pack(a, 0, bits)),
        "unpack": (count, lambda: chosen.unpack(low, high, count, 0, bits, np.dtype(np.int32))),
        "overlay": (count, lambda: chosen.overlay(*empty, acc, b, values)),
        "settle": (count, lambda: chosen.overwrite_where(acc, a, b, values)),
        "add": (2 * count, lambda: chosen.add(a, values, b, values)),
        "add_dense": (len(acc), lambda: np.add(grad, residual, out=acc)),
        "check": (len(acc), lambda: require_finite_gradient(grad, 0)),
    }
    # What a reduce leaves to the next pass over its residual it only lists; else it writes that itself.
    jobs["correct"] = jobs["settle"]
    if (corrector := chosen.corrector) is not None:
        jobs["correct"] = (2 * count, lambda: corrector.corrections([a], [(b, values)], [(b, values)]))
    costs = {name: _seconds(job) / elements for name, (elements, job) in jobs.items()}
    return costs | _overheads(chosen) | {"round": 0.0}


def _overheads(chosen: Kernels) -> dict[str, float]:
    """From tiny reduces, alone and among eight ranks in this process."""
    alone, together = (_time(_tiny_reduce(chosen, ranks)) for ranks in (1, 8))
    frames = 8 + 2 * 14  # of each of the eight ranks, as the model counts them: to select from, to write, to read
    # What frames add is processor time: by the clock, one of the two may have waited for a core, and the other not.
    added = together.busy / 8 - alone.busy
    return {"call": alone.seconds, "frame": added / frames * together.seconds / together.busy}


def _tiny_reduce(chosen: Kernels, ranks: int) -> Callable[[], object]:
    layout = schedule.Teams(ranks, 1)
    grads = [np.ones(64, np.float32)] * ranks
    reducers = [
        SparDL(64, 8, rank=rank, layout=layout, dtype=np.float32, kernels=chosen, codec=Codec(chosen))
        for rank in range(ranks)
    ]
    return lambda: loopback([reducer.reduce(grad) for reducer, grad in zip(reducers, grads, strict=True)])


class _Time(NamedTuple):
    seconds: float
    busy: float  # of them on a core


def _seconds(job: Callable[[], object]) -> float:
    return _time(job).seconds


def _time(job: Callable[[], object]) -> _Time:
    """Of one run: the median of several times as many as take a while."""
    job()
    taken = []
    for _ in range(_REPEATS):
        count, elapsed = 0, 0.0
        used, started = time.process_time(), time.perf_counter()
        while elapsed < _SECONDS_EACH:  # at least once, however long others have had the core meanwhile
            job()
            count += 1
            elapsed = time.perf_counter() - started
        taken.append((elapsed / count, (time.process_time() - used) / count))
    seconds, busy = np.median(taken, axis=0)
    return _Time(float(seconds), float(busy))
