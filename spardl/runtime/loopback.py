"""All ranks in this process and one thread: deterministic, so that thousands of configurations can be tried a minute.

What is sent between two ranks keeps its order, as with MPI; what happens next is free, and a seed shuffles it. When
nothing can move, that is a deadlock of the algorithm, and the error says who waits for whom.

There is a clock, which stands still while anything can move: time limits are for what does not come at all. With
``Mischief`` ranks stop and go on, and alarms ring although what is waited for is on its way.
"""

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from spardl.effects import FRONT_BYTES, Bytes, Collective
from spardl.kernels import memory
from spardl.kernels.api import Messages
from spardl.runtime.envelope import Stamp, checked_stamp, sealed
from spardl.runtime.local import Action, Local
from spardl.runtime.process import CallOff, Program

# Told the sender, the receiver and a message in its envelope, which it may change: what a faulty network does.
Damage: TypeAlias = Callable[[int, int, Bytes], None]
_STAMP = Stamp(0, 0)  # there is one call


def loopback(
    generators: Sequence[Collective[Any]] | Sequence[Program],
    *,
    seed: int | None = None,
    messages: Sequence[Messages] | None = None,
) -> list[Any]:
    """Runs one generator per rank to the end and returns what each returned; of programs, what training did.

    With ``seed``, the order in which ranks move is drawn at random; the results must not depend on it. ``messages``: by
    rank, in what memory; the host's by default. An error on one rank closes the others and is raised here.
    """
    return Loopback(generators, seed=seed, messages=messages).run()


@dataclass(slots=True)
class Mischief:
    """What goes wrong, and how often. Ranks stop and go on later; those in ``for_good`` stop once, and never go on.

    ``false_alarms``: so many times the clock goes on to the next alarm although mail is on its way. Neither that nor a
    stop takes longer than ``seconds``.
    """

    stops: int = 0
    false_alarms: int = 0
    seconds: float = 10.0
    may_stop: Sequence[int] = ()
    for_good: Sequence[int] = ()


class Loopback(Local):
    """A run, with every rank's traffic to look at afterwards."""

    def __init__(
        self,
        generators: Sequence[Collective[Any]] | Sequence[Program],
        *,
        seed: int | None = None,
        messages: Sequence[Messages] | None = None,
        damage: Damage | None = None,
        mischief: Mischief | None = None,
    ) -> None:
        super().__init__(generators)
        self._damage = damage
        self._messages = messages or [memory.HOST.messages] * len(generators)
        self._chance = None if seed is None else random.Random(seed)
        self._mischief = mischief or Mischief()
        # How often something goes wrong: in some runs much at once, in others late.
        self._restless = 0.0 if self._chance is None else self._chance.choice([0.01, 0.05, 0.2])
        self._able = _Pool(self._chance)  # what can happen now: a rank, and what it does then
        self._links: defaultdict[Hashable, deque[Action]] = defaultdict(deque)
        self._held: defaultdict[int, list[Action]] = defaultdict(list)  # what happens when a stopped rank goes on
        self._alarms: list[tuple[float, int, int, list[Action]]] = []
        self._sequence = count()
        self._clock = 0.0

    # -- what happens next ---------------------------------------------------------------------------------------------

    def happen(self) -> bool:
        if self._chance is not None:
            self._stop_or_go_on(self._chance)
        if self._able and not self._rings_in_vain():
            rank, action = self._able.take()
            if rank in self.stopped:
                self._held[rank].append(action)
            else:
                action()
            return True
        return self._ring() or self._go_on_at_last()

    def _stop_or_go_on(self, chance: random.Random) -> None:
        if not (self._mischief.stops or self._mischief.for_good or self.stopped):
            return
        able_to_go_on = sorted(self.stopped - set(self._mischief.for_good))
        if able_to_go_on and chance.random() < self._restless / 2:
            self._go_on(chance.choice(able_to_go_on))
        may_stop = [rank for rank in self._mischief.may_stop if rank not in self.stopped]
        if self._mischief.stops and may_stop and chance.random() < self._restless:
            self._mischief.stops -= 1
            self.stopped.add(chance.choice(may_stop))
        for rank in self._mischief.for_good:
            if chance.random() < self._restless / 10:
                self.stopped.add(rank)

    def _go_on(self, rank: int) -> None:
        self.stopped.discard(rank)
        for action in self._held.pop(rank, ()):
            self.soon(rank, action)

    def _go_on_at_last(self) -> bool:
        waiting = sorted(self.stopped - set(self._mischief.for_good))
        for rank in waiting:
            self._go_on(rank)
        return bool(waiting)

    def _rings_in_vain(self) -> bool:
        in_vain = bool(self._mischief.false_alarms) and self._may(self._restless) and self._rings_soon()
        self._mischief.false_alarms -= in_vain
        return in_vain

    def _rings_soon(self) -> bool:
        while self._alarms and not self._alarms[0][3]:  # it was called off
            heapq.heappop(self._alarms)
        return bool(self._alarms) and self._alarms[0][0] <= self._clock + self._mischief.seconds

    def _may(self, probability: float) -> bool:
        return self._chance is not None and self._chance.random() < probability

    def _ring(self) -> bool:
        """The next alarm, which makes it as late as that; False if there is none."""
        if self.stopped and (not self._rings_soon() or self._may(0.3)) and self._go_on_at_last():
            return True
        while self._alarms:
            at, _, rank, ring = heapq.heappop(self._alarms)
            if ring:  # it was not called off
                self._clock = at
                self.soon(rank, ring[0])
                return True
        return False

    # -- for what derives from Local -----------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock

    def soon(self, rank: int, action: Action) -> None:
        self._able.add((rank, action))

    def carry(self, sender: int, to: int, link: Hashable, nbytes: int, arrive: Action) -> None:
        waiting = self._links[link]
        waiting.append(arrive)
        if len(waiting) == 1:
            self.soon(to, lambda: self._deliver(to, link))

    def _deliver(self, to: int, link: Hashable) -> None:
        waiting = self._links[link]
        arrive = waiting.popleft()
        if waiting:
            self.soon(to, lambda: self._deliver(to, link))
        else:
            del self._links[link]
        arrive()

    def after(self, rank: int, seconds: float, ring: Action) -> CallOff:
        alarm = [ring]
        heapq.heappush(self._alarms, (self._clock + seconds, next(self._sequence), rank, alarm))
        return alarm.clear

    def compute(self, rank: int, seconds: float, done: Action) -> None:
        self.soon(rank, done)  # whenever it pleases: there is no telling how long that takes

    def envelope(self, sender: int, to: int, payload: Any) -> tuple[int, Callable[[], Any]]:
        here, there = self._messages[sender], self._messages[to]
        message = sealed(payload, _STAMP, here)
        arriving = there.inbox(len(message))  # a copy: the sender may use its buffer again
        there.handle(arriving)[:] = here.handle(message)
        if self._damage is not None:
            self._damage(sender, to, arriving)

        def opened() -> Any:
            message = there.opened(arriving)
            checked_stamp(message, sender)
            return message[FRONT_BYTES:]

        return len(message) - FRONT_BYTES, opened


class _Pool:
    """Things, of which one is taken at a time: at random, or the first."""

    def __init__(self, chance: random.Random | None) -> None:
        self._chance = chance
        self._in_order: deque[tuple[int, Action]] = deque()
        self._in_no_order: list[tuple[int, Action]] = []
        self.add = self._in_order.append if chance is None else self._in_no_order.append

    def __bool__(self) -> bool:
        return bool(self._in_order or self._in_no_order)

    def take(self) -> tuple[int, Action]:
        if self._chance is None:
            return self._in_order.popleft()
        place = self._chance.randrange(len(self._in_no_order))
        taken, self._in_no_order[place] = self._in_no_order[place], self._in_no_order[-1]
        self._in_no_order.pop()
        return taken
