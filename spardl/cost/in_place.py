"""What a reduce takes on these ranks beyond its messages and its kernels in a loop.

Kernels are measured one at a time, again and again, and messages in rounds without a pause. In a reduce code and data
are in no cache, ranks that share cores also move messages, and who waits has to wake up. So reduces are measured as
they are. Tiny ones, with many rounds and with few, say what a round and a call take; a large one, how much slower
kernels are.
"""

from dataclasses import replace

import numpy as np

from spardl import kernels
from spardl.collectives.spardl import SparDL
from spardl.cost.kernels import PER_CALL
from spardl.cost.model import Prediction, predict
from spardl.cost.profile import Profile
from spardl.cost.stopwatch import Stopwatch
from spardl.effects import Bytes, Collective
from spardl.runtime.group import Group
from spardl.schedule import Teams
from spardl.wire import Codec

_TINY, _LARGE = 64, 1 << 23  # elements
_WARMUP, _REPEATS = 2, 7
_SLOWEST = 16.0  # times


def put_right(profile: Profile, stopwatch: Stopwatch) -> Profile:
    """The same profile with kernels' times as they are in a reduce. All ranks call this together and get the same."""
    ranks = profile.ranks
    if ranks == 1:
        return profile
    many, few = (_measured(stopwatch, _TINY, teams) for teams in (1, ranks))
    large = _measured(stopwatch, _LARGE, 1)
    more = _predicted(profile, _TINY, 1).rounds - _predicted(profile, _TINY, ranks).rounds
    said = _predicted(profile, _TINY, 1).seconds - _predicted(profile, _TINY, ranks).seconds
    profile = _longer(profile, "round", (many - few - said) / more)
    profile = _longer(profile, "call", few - _predicted(profile, _TINY, ranks).seconds)
    return _slowed(profile, _slowdown(profile, large))


def _longer(profile: Profile, what: str, seconds: float) -> Profile:
    return replace(profile, gamma=profile.gamma | {what: profile.gamma[what] + max(0.0, seconds)})


def _measured(stopwatch: Stopwatch, size: int, teams: int) -> float:
    group, chosen = stopwatch.group, kernels.load()
    reducer = SparDL(
        size,
        _budget(size),
        rank=group.me,
        layout=Teams(group.size, teams),
        dtype=np.float32,
        kernels=chosen,
        codec=Codec(chosen),
    )
    grad = np.random.default_rng(group.me).standard_normal(size, dtype=np.float32)
    elsewhere = np.zeros(_LARGE, np.float32)

    def pattern(group: Group, payload: Bytes, count: int) -> Collective[None]:
        yield from reducer.reduce(grad)

    seconds = []
    for _ in range(_WARMUP + _REPEATS):
        elsewhere += 1  # training, which needs the caches too
        seconds.append(stopwatch.once(pattern))
    return float(np.median(seconds[_WARMUP:]))


def _budget(size: int) -> int:
    return max(8, size // 100)


def _predicted(profile: Profile, size: int, teams: int) -> Prediction:
    return predict(profile, "spardl", ranks=profile.ranks, size=size, k=_budget(size), teams=teams)


def _slowed(profile: Profile, factor: float) -> Profile:
    gamma = {name: cost * (1 if name in PER_CALL else factor) for name, cost in profile.gamma.items()}
    return replace(profile, gamma=gamma)


def _slowdown(profile: Profile, seconds: float) -> float:
    """The factor with which a large reduce is predicted to take so long, by bisection; it takes longer the larger."""
    low, high = 1.0, _SLOWEST
    for _ in range(30):
        middle = (low + high) / 2
        too_short = _predicted(_slowed(profile, middle), _LARGE, 1).seconds < seconds
        low, high = (middle, high) if too_short else (low, middle)
    return low
