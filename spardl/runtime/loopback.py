"""All ranks in this process and one thread: deterministic, so that thousands of configurations can be tried a minute.

Messages between two ranks keep their order, as with MPI; which rank moves next is free, and a seed shuffles it.
When no rank can move, that is a deadlock of the algorithm, and the error says who waits for whom.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spardl.effects import FRONT_BYTES, Allreduce, Bytes, Collective, Effect, Exchange, Recv, Send
from spardl.errors import Deadlock
from spardl.kernels import memory
from spardl.kernels.api import Messages
from spardl.runtime.envelope import Stamp, checked_stamp, sealed
from spardl.runtime.traffic import Traffic

# Told the sender, the receiver and a message in its envelope, which it may change: what a faulty network does.
Damage: TypeAlias = Callable[[int, int, Bytes], None]
_STAMP = Stamp(0, 0)  # there is one call


def loopback(
    generators: Sequence[Collective[Any]], *, seed: int | None = None, messages: Sequence[Messages] | None = None
) -> list[Any]:
    """Runs one generator per rank to the end and returns what each returned.

    With ``seed``, the order in which ranks move is drawn at random; the results must not depend on it. ``messages``: by
    rank, in what memory; the host's by default. An error on one rank closes the others and is raised here.
    """
    return Loopback(generators, seed=seed, messages=messages).run()


class Loopback:
    """A run, with every rank's traffic to look at afterwards."""

    def __init__(
        self,
        generators: Sequence[Collective[Any]],
        *,
        seed: int | None = None,
        messages: Sequence[Messages] | None = None,
        damage: Damage | None = None,
    ) -> None:
        self._generators, self._damage = list(generators), damage
        self._messages = messages or [memory.HOST.messages] * len(self._generators)
        self._order = None if seed is None else random.Random(seed)
        self._mail: defaultdict[tuple[int, int], deque[Bytes]] = defaultdict(deque)
        self._waiting: dict[int, Exchange | Recv] = {}
        self._summing: dict[int, Allreduce] = {}
        self._results: dict[int, Any] = {}
        self.traffic = [Traffic() for _ in self._generators]

    def run(self) -> list[Any]:
        try:
            ready: list[tuple[int, Bytes | None]] = [(rank, None) for rank in range(len(self._generators))]
            while ready:
                rank, arrived = ready.pop(self._order.randrange(len(ready)) if self._order else 0)
                self._resume(rank, arrived)
                ready += self._deliver()
            if self._waiting or self._summing:
                raise Deadlock(self._who_waits())
        finally:
            for generator in self._generators:
                generator.close()
        return [self._results[rank] for rank in range(len(self._generators))]

    def _resume(self, rank: int, arrived: Bytes | None) -> None:
        """Drives one rank until it waits or ends."""
        try:
            while True:
                effect: Effect = self._generators[rank].send(arrived)
                if isinstance(effect, Exchange | Send):
                    self._post(rank, effect)
                if isinstance(effect, Exchange | Recv):
                    self.traffic[rank].rounds += 1
                    self._waiting[rank] = effect
                    return
                if isinstance(effect, Allreduce):
                    self.traffic[rank].count_allreduce(effect.values.nbytes, len(self._generators))
                    self._summing[rank] = effect
                    return
                arrived = None
        except StopIteration as stop:
            self._results[rank] = stop.value

    def _post(self, rank: int, effect: Exchange | Send) -> None:
        if not 0 <= effect.to < len(self._generators):
            raise ValueError(f"rank {rank} sends to rank {effect.to}, but there are {len(self._generators)} ranks")
        here, there = self._messages[rank], self._messages[effect.to]
        message = sealed(effect.payload, _STAMP, here)
        arriving = there.inbox(len(message))  # a copy: the sender may use its buffer again
        there.handle(arriving)[:] = here.handle(message)
        if self._damage is not None:
            self._damage(rank, effect.to, arriving)
        self._mail[rank, effect.to].append(there.opened(arriving))
        self.traffic[rank].messages_sent += 1
        self.traffic[rank].bytes_sent += len(message) - FRONT_BYTES

    def _deliver(self) -> list[tuple[int, Bytes | None]]:
        """The ranks whose message is there, taken off the waiting list."""
        able = [rank for rank, effect in self._waiting.items() if self._mail[effect.source, rank]]
        delivered: list[tuple[int, Bytes | None]] = []
        for rank in able:
            source = self._waiting.pop(rank).source
            message = self._mail[source, rank].popleft()
            checked_stamp(message, source)
            payload = message[FRONT_BYTES:]
            self.traffic[rank].bytes_received += len(payload)
            delivered.append((rank, payload))
        return delivered + self._sum_up()

    def _sum_up(self) -> list[tuple[int, Bytes | None]]:
        """Everyone, if all have come to an Allreduce; added in rank order."""
        if len(self._summing) < len(self._generators):
            return []
        total = self._summing[0].values.copy()
        for rank in range(1, len(self._generators)):
            total += self._summing[rank].values
        for effect in self._summing.values():
            effect.out[:] = total
        self._summing.clear()
        return [(rank, None) for rank in range(len(self._generators))]

    def _who_waits(self) -> str:
        waits = (
            f"rank {rank} waits for {'all' if isinstance(effect, Allreduce) else effect.source} in "
            + (effect.step or f"round {self.traffic[rank].rounds - 1}")
            for rank, effect in sorted((self._waiting | self._summing).items())
        )
        return "no rank can move: " + "; ".join(waits)
