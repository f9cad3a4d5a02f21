"""Drives collectives on real ranks: buffers only, every wait with a deadline, any number of collectives in flight."""

import weakref
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from spardl.effects import Collective
from spardl.runtime.channel import Channel
from spardl.runtime.flight import Flight, advance_flights, land
from spardl.runtime.group import CommLike, Group, resolve
from spardl.runtime.inspector import warning_time
from spardl.runtime.limit import time_limit
from spardl.runtime.traffic import Traffic

Result = TypeVar("Result")


def default_timeout() -> float:
    """Seconds to wait for a peer: ``SPARDL_TIMEOUT``, or five minutes."""
    return time_limit(None)


def run(
    comm: CommLike,
    generator: Collective[Result],
    *,
    timeout: float | None = None,
    warn_after: float | None = None,
) -> Result:
    """Runs this rank's part of a collective and returns what it returns.

    ``comm`` is an mpi4py communicator, or ``(communicator, ranks)`` for a collective among a list of its ranks. Every
    rank of the group has to call this, in the same order. After ``warn_after`` seconds of waiting rank 0 prints who is
    missing, after ``timeout`` this raises.
    """
    seconds = time_limit(timeout)
    return Task(shared_channel(resolve(comm, seconds)), generator, seconds, warn_after=warn_after).wait()


def shared_channel(group: Group) -> Channel:
    """The channel for calls that have no object of their own."""
    channels: dict[tuple[bool, tuple[int, ...]], Channel] = group.home.shared
    key = (group.isolated, group.ranks)
    if key not in channels:
        channels[key] = Channel(group, group.shared_pair(), warning_time(None))
    return channels[key]


class Task(Generic[Result]):
    """A collective that was started. ``advance`` it now and then, or ``wait`` for it.

    Whoever waits, for whichever task, drives all collectives that its thread has in flight: ranks may wait for theirs
    in different orders. A task that is dropped still runs to its end, at the latest in its object's next call.
    """

    def __init__(
        self,
        channel: Channel,
        generator: Collective[Result],
        timeout: float,
        name: str = "collective",
        number: int | None = None,
        warn_after: float | None = None,
    ) -> None:
        self._flight = Flight(channel, generator, timeout, name, number, warn_after)
        self._flight.held_by = weakref.ref(self)

    @property
    def traffic(self) -> Traffic:
        return self._flight.traffic

    @property
    def done(self) -> bool:
        return self._flight.done

    @property
    def error(self) -> BaseException | None:
        """What it ended with, if that was an error."""
        return self._flight.error

    @property
    def awaits_bell(self) -> bool:
        """Whether a bell will ring when it can move on."""
        return bool(self._flight.ringers)

    def advance(self) -> bool:
        """Moves as far as possible without waiting. True if anything moved; errors are raised, here and in wait."""
        return self._flight.advance()

    def wait(self) -> Result:
        """Drives the collective to its end and returns its result."""
        land([self._flight])
        return self._flight.result

    def abort(self, error: Exception) -> None:
        """Ends the collective, on all ranks with ``error``, unless it has ended."""
        self._flight.abort(error)

    def call_off(self) -> None:
        """Ends the collective on this rank alone; the others have to be told by some other way."""
        self._flight.call_off()


def wait_all(tasks: Sequence[Task[Any]]) -> list[Any]:
    """Drives several collectives at once to their ends. Raises when all have ended, the error of the first in order:
    so all ranks raise the same one.
    """
    land([task._flight for task in tasks])
    return [task.wait() for task in tasks]


def advance_all(tasks: Sequence[Task[Any]]) -> bool:
    """Moves several collectives as far as possible without waiting. True if anything moved; wait raises errors."""
    return advance_flights([task._flight for task in tasks])
