"""How far the hosts' clocks are apart. Results do not depend on them; log files of several hosts do."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from spardl.doctor.verdict import ADVICE, OK, WARNING, Verdict
from spardl.effects import Bytes, Collective, Recv, Send

_REPEATS = 20
_NOTABLE, _BAD = 0.05, 5.0  # seconds


def offsets(me: int, peers: Sequence[int], now: Callable[[], float] = time.time) -> Collective[dict[int, float]]:
    """On rank 0, what each peer's clock is ahead of its own, in seconds.

    The peer's answer is taken to be from the middle of the way there and back; of many ways the shortest tells best.
    """
    ahead: dict[int, float] = {}
    for peer in peers:
        ways: list[tuple[float, float]] = []
        for _ in range(_REPEATS):
            if me == 0:
                left = now()
                yield Send(peer, _as_bytes(left))
                answer = yield Recv(peer)
                back = now()
                ways.append((back - left, _as_time(answer) - (left + back) / 2))
            elif me == peer:
                yield Recv(0)
                yield Send(0, _as_bytes(now()))
        if me == 0:
            ahead[peer] = min(ways)[1]
    return ahead


def _as_bytes(seconds: float) -> Bytes:
    return np.array([seconds], np.float64).view(np.uint8)


def _as_time(message: Bytes) -> float:
    return float(np.frombuffer(message.tobytes(), np.float64)[0])


def skew(ahead: dict[str, float]) -> Verdict:
    """By host: seconds that its clock is ahead of rank 0's."""
    if not ahead:
        return Verdict("clocks", OK, "one host, one clock")
    host = max(ahead, key=lambda name: abs(ahead[name]))
    apart = max([0.0, *ahead.values()]) - min([0.0, *ahead.values()])
    side = "ahead of" if ahead[host] > 0 else "behind"
    what = f"at most {_shown(apart)} apart; {host} is {_shown(abs(ahead[host]))} {side} rank 0's host"
    if apart < _NOTABLE:
        return Verdict("clocks", OK, what)
    todo = "Have the hosts' clocks set (chrony, ntpd), or do not compare times between their logs"
    return Verdict("clocks", ADVICE if apart < _BAD else WARNING, what, todo)


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"
