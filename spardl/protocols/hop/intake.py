"""Which neighbours' updates an iteration needs, and how much each counts."""

from typing import NamedTuple

from spardl.graphs import Graph
from spardl.protocols.hop.settings import Settings
from spardl.protocols.hop.update_queue import Tagged, UpdateQueue


class Blend(NamedTuple):
    """The next model: so much of the own one, and so much of each of these; they sum to 1."""

    own: float
    updates: list[tuple[float, Tagged]]


class Intake:
    """One worker's: it takes updates in, and says when there are enough of them."""

    def __init__(self, me: int, graph: Graph, settings: Settings) -> None:
        self._me, self._graph, self._settings = me, graph, settings
        self.queue = UpdateQueue(graph.inward[me])
        self._newest = dict.fromkeys(graph.inward[me], -1)  # iteration of the newest ever received, by neighbour
        self._numbers = dict.fromkeys(graph.inward[me], 0)  # of updates on the link
        self._gone: dict[int, int] = {}  # neighbours that train no more → the last iteration they have sent
        self._again: dict[int, Tagged] = {}  # the newest of each neighbour, if it may count again
        self.late = self.repeats = 0

    def take_in(self, sender: int, iteration: int, number: int, update: object, now: int) -> None:
        """``now``: the own iteration. What comes too late is counted, and not kept."""
        if number <= self._numbers[sender]:
            self.repeats += 1
            return
        if number > self._numbers[sender] + 1:
            raise RuntimeError(
                f"Hop: update {number} of rank {sender} has come after {self._numbers[sender]}: some are lost"
            )
        self._numbers[sender] = number
        self._newest[sender] = max(self._newest[sender], iteration)
        if iteration < self._oldest(now):
            self.late += 1
            return
        if self._settings.staleness is not None:  # only the newest of each counts
            self.queue.drop(sender)
        self.queue.enqueue(iteration, sender, update)

    def leave(self, sender: int, last: int) -> None:
        if sender in self._newest:
            self._gone[sender] = last

    def advance(self, iteration: int) -> None:
        """The worker is in this one now."""
        self.late += self.queue.drop_before(self._oldest(iteration))

    def _oldest(self, iteration: int) -> int:
        """The oldest iteration whose updates are of use in this one."""
        return iteration - (self._settings.staleness or 0)

    @property
    def slowest(self) -> int | None:
        """The iteration of the neighbour whose newest update is the oldest; None if nobody is there."""
        return min((self._newest[rank] for rank in self._newest if rank not in self._gone), default=None)

    # -- enough? -------------------------------------------------------------------------------------------------------

    def enough(self, iteration: int, spare: int, least: int = 0) -> bool:
        """All but ``spare`` of those who can be waited for, but no fewer than ``least``."""
        expected = self._expected(iteration)
        staleness = self._settings.staleness
        if staleness is None:
            there = len(self.queue.senders_of(iteration) & set(self._graph.at(iteration).inward[self._me]))
        else:
            there = sum(self._newest[sender] >= iteration - staleness for sender in expected)
        return there >= max(len(expected) - spare, min(least, len(expected)))

    def _expected(self, iteration: int) -> list[int]:
        """Those who have sent, or will send, what counts in this iteration."""
        inward = self._graph.at(iteration).inward[self._me]
        if self._settings.staleness is not None:
            return [sender for sender in inward if sender not in self._gone]
        return [sender for sender in inward if self._gone.get(sender, iteration) >= iteration]

    # -- how much ------------------------------------------------------------------------------------------------------

    def blend(self, iteration: int) -> Blend:
        """Takes what is there for this iteration."""
        if self._settings.staleness is None:
            return self._by_graph(iteration, self.queue.dequeue(iteration))
        self.late += self.queue.drop_before(self._oldest(iteration))
        return self._by_age(iteration, self.queue.dequeue())

    def _by_graph(self, iteration: int, taken: list[Tagged]) -> Blend:
        """By the graph's weights. A gone neighbour's goes to the own model; of others that are missing, to all."""
        graph = self._graph.at(iteration)
        row = graph.weights[self._me]
        gone = [sender for sender in graph.inward[self._me] if self._gone.get(sender, iteration) < iteration]
        own = float(row[self._me] + sum(row[sender] for sender in gone))
        weights = [float(row[tagged.sender]) for tagged in taken]
        missing = len(taken) + len(gone) < len(graph.inward[self._me])
        total = own + sum(weights) if missing else 1.0
        return Blend(own / total, [(weight / total, tagged) for weight, tagged in zip(weights, taken, strict=True)])

    def _by_age(self, iteration: int, fresh: list[Tagged]) -> Blend:
        """The newer, the more: an update's iteration − the oldest that counts + 1."""
        oldest = self._oldest(iteration)
        if self._settings.reuse:
            self._again.update({tagged.sender: tagged for tagged in fresh})
            fresh = [tagged for tagged in self._again.values() if tagged.iteration >= oldest]
        own = iteration - oldest + 1
        ages = [tagged.iteration - oldest + 1 for tagged in fresh]
        total = own + sum(ages)
        return Blend(own / total, [(age / total, tagged) for age, tagged in zip(ages, fresh, strict=True)])
