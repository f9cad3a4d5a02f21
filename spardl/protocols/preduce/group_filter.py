"""The group filter: of those who are ready, who forms a group.

Those whose signals are oldest do, unless the sync graph has fallen apart. Then signals of different parts of it are
taken together; and where all who are ready are of one part, they wait for somebody of another who is due. Without it
workers 1 and 2 may meet for ever, and 3 and 4.
"""

from typing import NamedTuple

from spardl.protocols.preduce.history import GroupHistory
from spardl.protocols.preduce.signal_queue import Queued, SignalQueue
from spardl.protocols.preduce.step_times import StepTimes


class Hold(NamedTuple):
    """Nobody yet: look again then, or when another signal has come."""

    until: float


class GroupFilter:
    """Looks at the queue whenever it has changed."""

    def __init__(self, history: GroupHistory, times: StepTimes, active: bool = True) -> None:
        self._history, self._times, self._active = history, times, active
        self._held_since: float | None = None

    def choose(self, queue: SignalQueue, size: int, now: float) -> list[int] | Hold:
        """So many ranks of the queue, which has as many."""
        queued = list(queue)
        if not self._active:
            return [one.rank for one in queued[:size]]
        components = self._history.components(one.rank for one in queued)
        if len(set(components.values())) > 1:
            if len({components[one.rank] for one in queued}) > 1:
                return self._let_go(_joining(queued, size, components))
            until = self._hold_until(queued, components, now)
            if until > now:
                return Hold(until)
        return self._let_go([one.rank for one in queued[:size]])

    def _let_go(self, ranks: list[int]) -> list[int]:
        self._held_since = None
        return ranks

    def _hold_until(self, queued: list[Queued], components: dict[int, int], now: float) -> float:
        """When the last of those of other parts is due who are not overdue, but not for longer than a step."""
        here = components[queued[0].rank]
        dues = [self._times.due(rank) for rank, component in components.items() if component != here]
        if self._held_since is None:
            self._held_since = now
        longest = self._held_since + self._times.median(components)
        return min(max((due for due in dues if due is not None), default=now), longest)


def _joining(queued: list[Queued], size: int, components: dict[int, int]) -> list[int]:
    """The oldest signal, then the oldest of every other part of the graph, then whoever is oldest."""
    firsts: dict[int, int] = {}
    for one in queued:
        firsts.setdefault(components[one.rank], one.rank)
    chosen = list(firsts.values())[:size]
    chosen += [one.rank for one in queued if one.rank not in chosen][: size - len(chosen)]
    return chosen
