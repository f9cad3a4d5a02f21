"""All ranks in this process and one thread. Who derives from this says when what was sent arrives.

A rank has processes, or takes part in one collective. Nothing here scans ranks: an event costs the same however many
there are.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from spardl import notes
from spardl.effects import (
    FRONT_BYTES,
    TRAINING,
    Allreduce,
    Collective,
    Exchange,
    Flush,
    Join,
    Mail,
    Post,
    Recv,
    Send,
    Size,
    Work,
)
from spardl.errors import Deadlock
from spardl.runtime.among import among
from spardl.runtime.process import CallOff, Done, Program, Rank
from spardl.runtime.traffic import Traffic

Action = Callable[[], None]
Failed = Callable[[BaseException], None]

_SENDING, _RECEIVING = (Exchange, Send), (Exchange, Recv)


class Local(ABC):
    """The ranks of a job. Build it with one collective or one program per rank, and ``run`` it."""

    def __init__(self, generators: Sequence[Collective[Any]] | Sequence[Program]) -> None:
        self._programs = [given for given in generators if isinstance(given, Program)]
        self._collectives = [given for given in generators if not isinstance(given, Program)]
        self._results: dict[int, Any] = {}
        self.traffic = [Traffic() for _ in generators]
        self.seconds = [0.0 for _ in generators]  # by rank: when all that it runs had ended
        self.ranks: list[Rank] = []  # by rank: its processes
        self.trainings: list[Rank | None] = []  # by rank: its training
        self._strands: dict[tuple[Hashable, int], Strand] = {}  # that wait, by collective and rank
        self._sums: defaultdict[Hashable, dict[int, Strand]] = defaultdict(dict)  # that wait in an Allreduce
        self._inboxes: dict[tuple[Hashable, int, int], deque[Any]] = {}  # none of them is empty
        self._met: list[Action] = []
        self.stopped: set[int] = set()  # ranks that do not move

    def run(self) -> list[Any]:
        """To the end: what each rank returned; of programs, what training did. An error on one closes the others."""
        with self._closed_in_the_end():
            self.add_programs(self._programs)
            self._begin_collective()
            while self.happen():
                pass
            self.require_ended(but=self.stopped)
        if self._collectives:
            return [self._results[rank] for rank in range(len(self._collectives))]
        for part in (*self.trainings, *self.ranks):
            if part is not None and part.error is not None:
                raise part.error
        return [None if part is None else part.results.get(TRAINING) for part in self.trainings]

    def _begin_collective(self) -> None:
        for rank, collective in enumerate(self._collectives):

            def done(result: Any, rank: int = rank) -> None:
                self._results[rank] = result
                self.seconds[rank] = self.now()

            self.begin(0, rank, len(self._collectives), collective, done)

    @contextmanager
    def _closed_in_the_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            for collective in self._collectives:
                collective.close()
            for part in (*self.trainings, *self.ranks):
                if part is not None:
                    part.close()

    # -- what kinds of it differ in ------------------------------------------------------------------------------------

    @abstractmethod
    def happen(self) -> bool:
        """The next thing; False if nothing can happen any more."""

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def carry(self, sender: int, to: int, link: Hashable, nbytes: int, arrive: Action) -> None:
        """Calls ``arrive`` when so many bytes have come; what goes over one link keeps its order."""

    @abstractmethod
    def soon(self, rank: int, action: Action) -> None:
        """Calls it when this rank moves next."""

    @abstractmethod
    def after(self, rank: int, seconds: float, ring: Action) -> CallOff: ...

    @abstractmethod
    def compute(self, rank: int, seconds: float, done: Action) -> None: ...

    @abstractmethod
    def envelope(self, sender: int, to: int, payload: Any) -> tuple[int, Callable[[], Any]]:
        """A payload's bytes, and what gives the copy that arrives."""

    def flush(self, strand: "Strand", go_on: Action) -> bool:
        """True if all that it has sent has arrived; else ``go_on`` is called then."""
        return True

    def work(self, rank: int, seconds: float, go_on: Action) -> bool:
        """True if that takes no time; else ``go_on`` is called then."""
        return True

    def hand_out(self, strand: "Strand", go_on: Action) -> None:
        """Calls it when the sum of an Allreduce, which all have come to, has reached this rank."""
        self.soon(strand.rank, go_on)

    # -- processes -----------------------------------------------------------------------------------------------------

    def add_programs(self, programs: Sequence[Program]) -> None:
        everyone = range(len(programs))
        for me, program in enumerate(programs):
            training = program.training
            self.ranks.append(Rank(me, everyone, program, _Seat(self, me)))
            alone = None if training is None else Rank(me, (), Program({TRAINING: training}), _TrainingSeat(self, me))
            self.trainings.append(alone)
            for part in (self.ranks[me], alone):
                if part is not None:
                    self.soon(me, part.start)

    def post(self, sender: int, post: Post) -> None:
        if post.process == TRAINING:
            training = self.trainings[post.to]
            if training is not None:
                mail = Mail(sender, post.note, post.array)
                self.carry(sender, sender, ("to training", sender), 0, lambda: training.deliver(TRAINING, mail))
            return
        if not 0 <= post.to < len(self.ranks):
            raise ValueError(f"rank {sender} posts to rank {post.to}, but there are {len(self.ranks)} ranks")
        nbytes, read = self.letter(sender, post)
        self.carry(
            sender, post.to, ("mail", sender, post.to, post.array is None), nbytes, lambda: self._read(post, read)
        )

    def letter(self, sender: int, post: Post) -> tuple[int, Callable[[], tuple[str, Mail]]]:
        """How many bytes it takes, and what gives the mail that arrives: as with MPI, from bytes."""
        text = notes.to_bytes(post.process, post.note)
        array = None if post.array is None else as_bytes(post.array)

        def read() -> tuple[str, Mail]:
            process, note = notes.from_bytes(text)
            return process, Mail(sender, note, array)

        return FRONT_BYTES + len(text) + (0 if array is None else len(array)), read

    def _read(self, post: Post, read: Callable[[], tuple[str, Mail]]) -> None:
        self.ranks[post.to].deliver(*read())

    def meet(self, me: int, done: Action) -> None:
        self.seconds[me] = self.now()
        self._met.append(lambda: self.soon(me, done))
        if len(self._met) == len(self.ranks):
            for action in self._met:
                action()

    # -- collectives ---------------------------------------------------------------------------------------------------

    def begin(
        self, key: Hashable, rank: int, size: int, collective: Collective[Any], done: Done, failed: Failed | None = None
    ) -> CallOff:
        """This rank's part in a collective of ``size`` ranks that all of them know by ``key``."""
        strand = Strand(self, key, rank, size, collective, done, failed)
        self.soon(rank, strand.start)
        return strand.call_off

    def transmit(self, strand: "Strand", effect: Exchange | Send) -> None:
        sender, to = strand.rank, effect.to
        if not 0 <= to < len(self.traffic):
            raise ValueError(f"rank {sender} sends to rank {to}, but there are {len(self.traffic)} ranks")
        nbytes, opened = self.envelope(sender, to, effect.payload)
        self.traffic[sender].messages_sent += 1
        self.traffic[sender].bytes_sent += nbytes
        self.carry(
            sender, to, ("data", strand.key, sender, to), nbytes, lambda: self._arrive(strand, to, nbytes, opened)
        )

    def _arrive(self, sent_by: "Strand", to: int, nbytes: int, opened: Callable[[], Any]) -> None:
        key, source = sent_by.key, sent_by.rank
        self.traffic[to].bytes_received += nbytes
        sent_by.delivered()
        waiting = self._strands.get((key, to))
        if waiting is not None and waiting.source == source:
            del self._strands[key, to]
            waiting.resume(opened())
        else:
            self._inboxes.setdefault((key, source, to), deque()).append(opened())

    def receive(self, strand: "Strand", source: int) -> None:
        """Resumes it when there is a message from ``source``."""
        if inbox := self._inboxes.get(link := (strand.key, source, strand.rank)):
            message = inbox.popleft()
            if not inbox:
                del self._inboxes[link]
            self.soon(strand.rank, lambda: strand.resume(message))
        else:
            self._strands[strand.key, strand.rank] = strand

    def sum_up(self, strand: "Strand") -> None:
        """When all have come to an Allreduce, everyone goes on; added in rank order."""
        summing = self._sums[strand.key]
        summing[strand.rank] = strand
        if len(summing) < strand.size:
            return
        del self._sums[strand.key]
        _add_up([summing[rank].effect for rank in sorted(summing)])
        for other in summing.values():
            self.hand_out(other, lambda other=other: other.resume(None))  # type: ignore[misc]

    def forget(self, strand: "Strand") -> None:
        self._strands.pop((strand.key, strand.rank), None)

    # -- the end -------------------------------------------------------------------------------------------------------

    def require_ended(self, but: Collection[int] = ()) -> None:
        """Raises if ranks, ``but`` these, still wait when nothing can move any more."""
        summing = {(key, rank): strand for key, here in self._sums.items() for rank, strand in here.items()}
        strands = self._strands | summing
        waiting = sorted((strand for strand in strands.values() if strand.rank not in but), key=lambda s: s.rank)
        waits = [strand.who_waits() for strand in waiting]
        for me, parts in enumerate(zip(self.trainings, self.ranks, strict=True)):
            for part in parts if me not in but else ():
                waits += [] if part is None or part.error is not None or part.ended else part.who_waits()
        if waits:
            raise Deadlock("no rank can move: " + "; ".join(waits))


def _add_up(effects: Sequence[Allreduce]) -> None:
    if isinstance(effects[0].values, Size):
        return
    total = effects[0].values.copy()
    for effect in effects[1:]:
        total += effect.values
    for effect in effects:
        effect.out[:] = total


def as_bytes(array: Any) -> Any:
    """A copy, read-only: the sender may use its own again."""
    copy = np.frombuffer(np.ascontiguousarray(array), np.uint8).copy()
    copy.flags.writeable = False
    return copy


class Strand:
    """One rank's part in one collective."""

    def __init__(
        self,
        local: Local,
        key: Hashable,
        rank: int,
        size: int,
        collective: Collective[Any],
        done: Done,
        failed: Failed | None,
    ) -> None:
        self.key, self.rank, self.size = key, rank, size
        self._local, self._collective, self._done, self._failed = local, collective, done, failed
        self.effect: Any = None
        self.on_its_way = 0  # messages
        self._flushing: Action | None = None
        self._over = False

    @property
    def source(self) -> int:
        return int(self.effect.source)

    def start(self) -> None:
        if not self._over:
            self.resume(None)

    def call_off(self) -> None:
        self._over = True
        self._local.forget(self)
        self._collective.close()

    def delivered(self) -> None:
        self.on_its_way -= 1
        if self.on_its_way == 0 and self._flushing is not None:
            go_on, self._flushing = self._flushing, None
            go_on()

    def resume(self, arrived: Any) -> None:
        """Until it waits or ends."""
        if self._over:
            return
        try:
            while True:
                self.effect = effect = self._collective.send(arrived)
                arrived = None
                if isinstance(effect, _SENDING):
                    self.on_its_way += 1
                    self._local.transmit(self, effect)
                if isinstance(effect, _RECEIVING):
                    self._local.traffic[self.rank].rounds += 1
                    self._local.receive(self, effect.source)
                    return
                if isinstance(effect, Allreduce):
                    self._local.traffic[self.rank].count_allreduce(effect.values.nbytes, self.size)
                    self._local.sum_up(self)
                    return
                if isinstance(effect, Flush) and not self._local.flush(self, self._go_on):
                    return
                if isinstance(effect, Work) and not self._local.work(self.rank, effect.seconds, self._go_on):
                    return
        except StopIteration as stop:
            self._over = True
            self._done(stop.value)
        except Exception as error:
            self._over = True
            if self._failed is None:
                raise
            self._failed(error)

    def _go_on(self) -> None:
        self.resume(None)

    def wait_for_delivery(self, go_on: Action) -> bool:
        if self.on_its_way:
            self._flushing = go_on
        return not self.on_its_way

    def who_waits(self) -> str:
        whom = "all" if isinstance(self.effect, Allreduce) else self.source
        step = self.effect.step or f"round {self._local.traffic[self.rank].rounds - 1}"
        return f"rank {self.rank} waits for {whom} in {step}"


class _Seat:
    """The carrier of one rank's processes."""

    def __init__(self, local: Local, me: int) -> None:
        self._local, self._me = local, me

    def now(self) -> float:
        return self._local.now()

    def post(self, post: Post) -> None:
        self._local.post(self._me, post)

    def after(self, seconds: float, ring: Action) -> CallOff:
        return self._local.after(self._me, seconds, ring)

    def compute(self, seconds: float, done: Action) -> None:
        self._local.compute(self._me, seconds, done)

    def begin(self, join: Join, done: Done) -> CallOff:
        part = among(join.members, join.collective)
        rank = self._local.ranks[self._me]
        return self._local.begin(join.number, self._me, len(join.members), part, done, rank.fail)

    def meet(self, done: Action) -> None:
        self._local.meet(self._me, done)

    def fail(self, error: BaseException) -> None:
        training = self._local.trainings[self._me]
        if training is not None:
            self._local.soon(self._me, lambda: training.interrupt(error))


class _TrainingSeat(_Seat):
    """The carrier of one rank's training: its mail goes through a door, to the rank's processes."""

    def post(self, post: Post) -> None:
        me = self._me
        if post.to != me:
            raise ValueError(f"training on rank {me} posts to rank {post.to}; it knows processes of its own rank only")
        rank, mail = self._local.ranks[me], Mail(me, post.note, post.array)
        self._local.carry(me, me, ("from training", me), 0, lambda: rank.deliver(post.process, mail))

    def meet(self, done: Action) -> None:
        self._local.seconds[self._me] = self._local.now()

    def fail(self, error: BaseException) -> None:
        rank = self._local.ranks[self._me]
        self._local.soon(self._me, lambda: rank.fail(error))
