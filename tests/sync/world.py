"""Scheduler and workers of several ranks in one thread, where chance decides who moves, who stops, and what is late."""

from collections import defaultdict, deque

import numpy as np

from spardl.effects import Exchange, Flush, Recv, Send, parts_of
from spardl.sync.notes import Commit, Go, Ping, Pong, Stop, from_bytes, to_bytes
from spardl.sync.protocol import CALLED_OFF, Fetch, InRound, Listen, Scheduler, Tell, worker


class Machine:
    """A generator that is driven: what it waits for, and what has come in for it."""

    def __init__(self, generator):
        self.generator = generator
        self.inbox = deque()  # (sender, note)
        self.ask = None
        self.answer = None
        self.result = None
        self.ended = False

    def resume(self):
        try:
            self.ask = self.generator.send(self.answer)
        except StopIteration as stop:
            self.ended, self.result = True, stop.value
        self.answer = None


def can_hear(machine):
    return bool(machine.inbox) or (machine.ask.until is not None and machine.ask.until())


class World:
    """``rng`` decides everything that is left open. Ranks other than 0 stop and go on, up to ``stops`` times."""

    def __init__(self, boxes, parts, policy, rng, stops=0, false_alarms=0):
        self.ranks = len(boxes)
        self.boxes, self.parts, self.rng = boxes, parts, rng
        has_shift = lambda: boxes[0].shift is not None  # noqa: E731
        self.scheduler = Machine(Scheduler(self.ranks, policy, has_shift=has_shift).run())
        self.workers = [Machine(worker(rank, boxes[rank], parts[rank])) for rank in range(self.ranks)]
        self.notes = defaultdict(deque)  # (sender, receiver) -> bytes
        self.mail = defaultdict(deque)  # (attempt, sender, receiver) -> payloads
        self.inner = [None] * self.ranks  # (go, generator, what it waits for)
        self.stopped = set()
        self.stops, self.false_alarms = stops, false_alarms
        self.called_off = 0

    def run(self, limit=200_000):
        for _ in range(limit):
            moves = self.moves()
            if not moves:
                if all(machine.ended for machine in (self.scheduler, *self.workers)):
                    return
                raise AssertionError(f"no rank can move: {self.state()}")
            move, *arguments = self.rng.choice(moves)
            move(*arguments)
        raise AssertionError(f"no end in sight: {self.state()}")

    def moves(self):
        """What may happen next. Timers go off in vain only so often; where nothing else can happen, they do."""
        alive = [rank for rank in range(self.ranks) if rank not in self.stopped]
        moves = [(self.deliver, *pair) for pair, queue in self.notes.items() if queue and pair[1] in alive]
        moves += [(self.move_worker, rank) for rank in alive if self.can_move(rank)]
        moves += [(box.deposit_next,) for rank, box in enumerate(self.boxes) if rank in alive and box.can_deposit]
        if self.boxes[0].can_offer:
            moves.append((self.boxes[0].offer_next,))
        scheduler = self.scheduler
        if not scheduler.ended and (not isinstance(scheduler.ask, Listen) or can_hear(scheduler)):
            moves.append((self.move_scheduler,))
        timer = not scheduler.ended and isinstance(scheduler.ask, Listen) and scheduler.ask.seconds is not None
        if timer and (self.false_alarms > 0 or not moves):
            moves.append((self.alarm, bool(moves)))
        if self.stops > 0 and len(alive) > 1 and not all(machine.ended for machine in self.workers):
            moves += [(self.stop, rank) for rank in alive[1:]]
        moves += [(self.go_on, rank) for rank in self.stopped]
        return moves

    # -- moves -------------------------------------------------------------------------------------------------------

    def deliver(self, sender, receiver):
        note = from_bytes(self.notes[sender, receiver].popleft())
        if isinstance(note, Ping):
            self.tell(receiver, sender, Pong())
        elif isinstance(note, Go | Commit | Stop):
            self.workers[receiver].inbox.append((sender, note))
        else:
            self.scheduler.inbox.append((sender, note))

    def tell(self, sender, receiver, note):
        self.notes[sender, receiver].append(to_bytes(note))

    def alarm(self, false):
        self.false_alarms -= false
        self.resume_scheduler()

    def stop(self, rank):
        self.stops -= 1
        self.stopped.add(rank)

    def go_on(self, rank):
        self.stopped.discard(rank)

    def move_scheduler(self):
        machine = self.scheduler
        if isinstance(machine.ask, Listen):
            machine.answer = machine.inbox.popleft() if machine.inbox else None
        self.resume_scheduler()

    def resume_scheduler(self):
        machine = self.scheduler
        machine.resume()
        while isinstance(machine.ask, Tell) and not machine.ended:
            self.tell(0, machine.ask.to, machine.ask.note)
            machine.resume()

    def can_move(self, rank):
        machine = self.workers[rank]
        ask = machine.ask
        if machine.ended:
            return False
        if isinstance(ask, Listen):
            return can_hear(machine)
        if isinstance(ask, Fetch):
            provider = self.boxes[ask.provider]
            return self.pointless(rank) or (ask.provider not in self.stopped and ask.round in provider.log)
        if isinstance(ask, InRound):
            return self.pointless(rank) or self.inner_can_move(rank)
        return True

    def pointless(self, rank):
        ask, later = self.workers[rank].ask, [note for _, note in self.workers[rank].inbox]
        if isinstance(ask, Fetch):
            return any(isinstance(note, Commit) and note.round == ask.round for note in later)
        return any(isinstance(note, Go) and note.round == ask.go.round for note in later)

    def move_worker(self, rank):
        machine = self.workers[rank]
        ask = machine.ask
        if isinstance(ask, Listen):
            machine.answer = machine.inbox.popleft() if machine.inbox else None
        elif isinstance(ask, Fetch):
            machine.answer = CALLED_OFF if self.pointless(rank) else self.boxes[ask.provider].log[ask.round]
        elif isinstance(ask, InRound):
            if self.pointless(rank):
                self.called_off += 1
                ask.part.close()
                self.inner[rank] = None
                machine.answer = CALLED_OFF
            elif not self.move_inner(rank):
                return
        elif isinstance(ask, Tell):
            self.tell(rank, ask.to, ask.note)
        machine.resume()

    # -- inside a round ----------------------------------------------------------------------------------------------

    def inner_can_move(self, rank):
        waits = self.inner[rank]
        number = self.workers[rank].ask.go.number
        return waits is None or bool(self.mail[number, waits.source, rank])

    def move_inner(self, rank):
        """True when the part is over, its result being the machine's answer."""
        ask, waits = self.workers[rank].ask, self.inner[rank]
        number = ask.go.number
        arrived = None if waits is None else self.mail[number, waits.source, rank].popleft()
        try:
            effect = ask.part.send(arrived)
            while isinstance(effect, Send | Flush):
                if isinstance(effect, Send):
                    self.post(number, rank, effect)
                effect = ask.part.send(None)
        except StopIteration as stop:
            self.inner[rank] = None
            self.workers[rank].answer = stop.value
            return True
        assert isinstance(effect, Exchange | Recv)
        if isinstance(effect, Exchange):
            self.post(number, rank, effect)
        self.inner[rank] = effect
        return False

    def post(self, number, rank, effect):
        payload = np.concatenate(parts_of(effect.payload))
        payload.flags.writeable = False
        self.mail[number, rank, effect.to].append(payload)

    def state(self):
        asks = {rank: (machine.ask, list(machine.inbox)) for rank, machine in enumerate(self.workers)}
        return f"scheduler {self.scheduler.ask} {list(self.scheduler.inbox)}; workers {asks}; stopped {self.stopped}"
