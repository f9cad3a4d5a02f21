"""One collective on its way on a real rank: what it waits for, how it ends, and what it makes of trouble."""

import threading
import time
import weakref
from collections.abc import Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from spardl import timeline
from spardl.effects import Allreduce, Collective, Effect, Exchange, Flush, Recv, Send
from spardl.errors import TELLS_OF_RANKS, PeerError, PeerTimeout, says_gone
from spardl.runtime import farewell
from spardl.runtime.backoff import Backoff
from spardl.runtime.channel import Channel, Incoming, Outgoing, Told
from spardl.runtime.failure import as_peer_error
from spardl.runtime.group import FIRST_FREE
from spardl.runtime.inspector import Inspector, answering_time, warning_time
from spardl.runtime.library import MPI
from spardl.runtime.neighbour import State
from spardl.runtime.stall import ALL, Stall, answering_grace, find_culprits, timed_out
from spardl.runtime.traffic import Traffic
from spardl.timeline.traced import traced

Result = TypeVar("Result")

_LOOK_EVERY = 20e-3  # seconds between looks at whether other ranks are in trouble
_MANY_SENT = 8  # messages after which to see whether the copies of some can be given up
_SENDING, _RECEIVING = (Exchange, Send), (Exchange, Recv)


class _Thread(threading.local):
    """What one thread has in flight; a dict because it keeps the order."""

    def __init__(self) -> None:
        self.flights: dict[Flight[Any], None] = {}


_thread = _Thread()


def land(flights: Sequence["Flight[Any]"]) -> None:
    """Until all of these have ended. Drives whatever else this thread has in flight, which others may wait for."""
    pause = Backoff()
    while not all(flight.done for flight in flights):
        moving = list(_thread.flights | dict.fromkeys(flights))
        if advance_flights(moving):
            pause.reset()
        else:
            ringers = [flight.ringers for flight in moving if not flight.done]
            pause(tuple(chain(*ringers)) if all(ringers) else ())


def advance_flights(flights: Sequence["Flight[Any]"]) -> bool:
    moved = False
    for flight in flights:
        try:
            moved |= flight.advance()
        except Exception:  # kept by the flight
            moved = True
    return moved


class Flight(Generic[Result]):
    """A collective on its way: the call on its channel, what it waits for, and how it ended."""

    def __init__(
        self,
        channel: Channel,
        generator: Collective[Result],
        timeout: float,
        name: str = "collective",
        number: int | None = None,
        warn_after: float | None = None,
    ) -> None:
        self.traffic = Traffic()
        self._channel, self._timeout, self._name = channel, timeout, name
        self._generator = self._traced(_flushed(generator))
        self._effect: Effect | None = None
        self._outgoing: list[Outgoing] = []
        self._incoming: Incoming | None = None
        self._arrived: Any = None
        self._receiving = False
        self._summing: MPI.Request | None = None
        self._outcome: tuple[Result] | BaseException | None = None
        self._stalled_at: float | None = None
        self._stalls_seen = 0
        self._quiet_since = time.monotonic()
        self._next_look = 0.0  # at once: another rank may have failed in this call before we came
        self._warn_after = channel.warn_after if warn_after is None else warning_time(warn_after)
        if number is not None:
            self._warn_after = 0.0  # whoever makes such calls has other ways with ranks that do not answer
        self._inspector: Inspector | None = None
        self.held_by: weakref.ref[Any] | None = None
        self._settle_dropped(channel)
        self._call = channel.begin(number)
        channel.flight = self
        self._registered = _thread.flights
        self._registered[self] = None

    def _settle_dropped(self, channel: Channel) -> None:
        """If nobody holds the channel's last task any more: the other ranks want its end all the same."""
        last: Flight[Any] | None = channel.flight
        if last is not None and not last.done and (last.held_by is None or last.held_by() is None):
            land([last])

    def _traced(self, generator: Collective[Result]) -> Collective[Result]:
        """As it is, unless there is a timeline."""
        recorder = timeline.current()
        if recorder is None:
            return generator
        channel = self._channel
        if channel.track is None:
            number = channel.pair - FIRST_FREE
            channel.track = recorder.new_track(f"{self._name} {number}" if number >= 0 else "other calls")
        return traced(recorder, channel.track, self._name, generator)

    @property
    def done(self) -> bool:
        return self._outcome is not None

    @property
    def error(self) -> BaseException | None:
        """What it ended with, if that was an error."""
        return self._outcome if isinstance(self._outcome, BaseException) else None

    @property
    def ringers(self) -> tuple[bytes, ...]:
        """The bell of whoever rings this process's when it has sent what this waits for; empty if nobody does."""
        if self._receiving and self._incoming is None:
            name = self._channel.bell_of(self._effect.source)  # type: ignore[union-attr]
            return () if name is None else (name,)
        return ()

    def advance(self) -> bool:
        """Moves as far as possible without waiting. True if anything moved; errors are raised, here and in wait."""
        if self._outcome is not None:
            return False
        try:
            if self._effect is None:
                self._channel.require_sound()
            moved = False
            while self._outcome is None and self._move():
                moved = True
            if not moved:
                now = time.monotonic()
                if now >= self._next_look:
                    self._next_look = now + _LOOK_EVERY
                    self._look_around(now)
            return moved
        except BaseException as error:
            raise self._fail(error) from None

    @property
    def result(self) -> Result:
        """What it returned; raises what it ended with."""
        assert self._outcome is not None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome[0]

    def abort(self, error: Exception) -> None:
        """Ends the collective, on all ranks with ``error``, unless it has ended."""
        if not self.done:
            self._fail(error)

    def call_off(self) -> None:
        """Ends the collective on this rank alone; the others have to be told by some other way."""
        if not self.done:
            self._end(RuntimeError(f"{self._name} was called off"))

    # -- one step ------------------------------------------------------------------------------------------------------

    def _move(self) -> bool:
        """Resumes the generator if what it asked for is there; else sees whether that has come nearer."""
        if self._receiving:
            if not self._progress_receive():
                return False
            if self._receiving:
                return True
        elif self._summing is not None:
            if not self._summing.Test():
                return False
            self._summing = None
        elif self._outgoing and isinstance(self._effect, Flush):
            moved = self._progress_sends()
            if self._outgoing:
                return moved
        started = time.perf_counter()
        try:
            effect = self._generator.send(self._arrived)
        except StopIteration as stop:
            if self._inspector is not None:
                self._inspector.go_on()
            self._channel.end(failed=False)
            self._landed((stop.value,))
            return True
        except TELLS_OF_RANKS as error:
            raise error.among(self._channel.group.ranks) from None
        finally:
            self.traffic.compute_seconds += time.perf_counter() - started
        self._arrived = None
        self._start(effect)
        return True

    def _start(self, effect: Effect) -> None:
        self._effect = effect
        self._quiet_since = time.monotonic()
        if isinstance(effect, _SENDING):
            if len(self._outgoing) >= _MANY_SENT:
                self._progress_sends()
            outgoing = self._channel.send(effect.to, effect.payload)
            self._outgoing.append(outgoing)
            self.traffic.messages_sent += 1
            self.traffic.bytes_sent += len(outgoing.message)
        elif isinstance(effect, Allreduce):
            self._summing = self._channel.sum(effect.values, effect.out)
            self.traffic.count_allreduce(effect.values.nbytes, self._channel.group.size)
        self._receiving = isinstance(effect, _RECEIVING)
        self.traffic.rounds += self._receiving

    def _progress_sends(self) -> bool:
        # The channel sends copies, so nobody waits for these before a flush: a receiver may be rounds behind.
        under_way = [outgoing for outgoing in self._outgoing if not outgoing.request.Test()]
        moved = len(under_way) < len(self._outgoing)
        self._outgoing = under_way
        return moved

    def _progress_receive(self) -> bool:
        if self._incoming is None:
            self._incoming = self._channel.arriving(self._effect.source)  # type: ignore[union-attr]
        if self._incoming is None or not self._incoming.request.Test():
            return False
        incoming, self._incoming = self._incoming, None
        self._arrived = self._channel.accept(incoming)
        if self._arrived is not None:
            self._receiving = False
            self.traffic.bytes_received += len(incoming.buffer)
            assert self._effect is not None
            self._channel.lookout.note(incoming.source, self._call, self.traffic.rounds, self._effect.step)
        return True

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _look_around(self, now: float) -> None:
        """Nothing moved: has another rank failed or stalled, or have we waited too long ourselves?"""
        stalls = self._channel.notices()
        for call in self._channel.stalled_elsewhere():
            self._channel.tell_stall(self._stall(now), call)
        if self._warn_after > 0:
            self._inspect(now)
        grace = answering_grace(self._timeout)
        if self._stalled_at is None:
            if len(stalls) > self._stalls_seen or now > self._quiet_since + self._timeout - grace:
                self._stalled_at = now
                self._channel.tell_stall(self._stall(now))
        elif self._quiet_since > self._stalled_at:  # what was awaited has come after all
            self._stalled_at, self._stalls_seen = None, len(stalls)
        elif now > self._stalled_at + grace:
            raise self._timed_out(now)

    def _inspect(self, now: float) -> None:
        if self._inspector is None:
            first_asks = self._quiet_since + self._warn_after - answering_time(self._warn_after)
            if now < first_asks and not self._channel.lookout.reports:
                return
            self._inspector = Inspector(self._channel, self._call, self._name, self._warn_after, self._timeout)
        self._inspector.look(now, self._quiet_since, *self._waits_for())

    def _waits_for(self) -> tuple[int, str]:
        effect = self._effect
        assert effect is not None
        if isinstance(effect, Allreduce):
            return ALL, effect.step
        peer = effect.source if isinstance(effect, _RECEIVING) else self._outgoing[0].to
        return peer, effect.step or f"round {max(0, self.traffic.rounds - 1)}"

    def _stall(self, now: float) -> Stall:
        seen = self._channel.group.neighbours()
        gone, runs = (tuple(at for at, state in seen.items() if state is kind) for kind in (State.GONE, State.RUNS))
        return Stall(*self._waits_for(), now - self._quiet_since, gone, runs)

    def _timed_out(self, now: float) -> PeerTimeout:
        group = self._channel.group
        stalls = {notice.sender: Stall.from_bytes(notice.body) for notice in self._channel.notices()}
        stalls[group.me] = self._stall(now)
        culprits = find_culprits(group.size, stalls)
        text = timed_out(self._name, self._timeout, group.ranks, culprits, stalls)
        return PeerTimeout(text, ranks=tuple(group.ranks[peer] for peer in culprits))

    def _fail(self, error: BaseException) -> BaseException:
        """Ends the call on this rank and sees to it that it ends on the others."""
        group = self._channel.group
        if isinstance(error, MPI.Exception):
            error = as_peer_error(error, group, self._name)
        if isinstance(error, Told):
            error = error.error
        else:
            self._channel.tell_fault(error)
        if says_gone(error):
            assert isinstance(error, PeerTimeout | PeerError)
            farewell.lose(group.line, error.ranks or group.ranks)
        self._end(error)
        return error

    def _end(self, error: BaseException) -> None:
        for outgoing in self._outgoing:
            self._channel.abandon(outgoing.request, outgoing.message)
        if self._summing is not None:
            self._channel.abandon_sum(self._summing, self._effect)
        if self._incoming is not None:
            self._channel.abandon(self._incoming.request, self._incoming.buffer)
        self._channel.end(failed=True)
        self._generator.close()
        self._landed(error)

    def _landed(self, outcome: tuple[Result] | BaseException) -> None:
        self._outcome = outcome
        self._registered.pop(self, None)
        self._channel.flight = None


def _flushed(generator: Collective[Result]) -> Collective[Result]:
    """A call ends when its messages are there: who leaves earlier may be needed to push them on."""
    result = yield from generator
    yield Flush("delivery")
    return result
