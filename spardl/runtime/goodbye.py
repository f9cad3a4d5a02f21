"""How ranks hear that one of them has left: its program has ended, and it makes no more calls.

Who leaves says so on a tag that nothing else uses, once per communicator and peer, with the number of calls it has made
on every channel: a call that it has gone through can still come to its end on the others, a later one cannot. In a
large job it tells a few only, at distances 1, 2, 4, …: so everyone who stays hears of the nearest rank before it that
left.
"""

import json
import time
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from spardl.errors import from_notice, to_notice
from spardl.runtime.library import MPI
from spardl.runtime.outbox import Outbox, next_arriving

TELLS_ALL = 128  # ranks of a communicator, up to which everybody hears of everybody
_MOST_CHANNELS = 200  # in a goodbye, which shall be sent eagerly by any MPI
_SENT_WITHIN = 0.5  # seconds
_LEAVES, _CAME = "leaves", "came"


class Left(NamedTuple):
    """What a rank said when it left."""

    calls: Mapping[int, int]  # by channel: the last call that was over there
    complete: bool  # whether calls has all channels
    error: bytes | None  # a notice

    def goes_through(self, channel: int, call: int) -> bool:
        """Whether the rank has been through this call, or may have been."""
        return call <= self.calls.get(channel, 0) or (channel not in self.calls and not self.complete)

    def why(self, rank: int) -> Exception | None:
        """The exception that its program ended by, if it did."""
        return None if self.error is None else from_notice(self.error, rank)


class Line:
    """One communicator's. Any thread may use it."""

    def __init__(self, comm: MPI.Intracomm, peers: Iterable[int] = ()) -> None:
        self.comm = comm
        self.peers = set(peers)  # ranks of comm that calls were made with
        self._calls: dict[int, int] = {}  # of this rank, by channel; the latest last
        self._complete = True  # whether that has all channels
        self.left: dict[int, Left] = {}  # by rank of comm
        self.came: set[int] = set()  # who says that it waits in the first use of the communicator
        self.timeout = 0.0  # the longest that was given
        self.in_world = _ranks_in_world(comm)
        self._tag = int(comm.Get_attr(MPI.TAG_UB) or 32767)
        self._outbox = Outbox()
        _lines.add(self)

    def close(self) -> None:
        """Before the communicator is freed."""
        _lines.discard(self)

    def uses(self, peers: Iterable[int], timeout: float) -> None:
        """Calls are going to be made with these."""
        self.peers.update(rank for rank in peers if rank != self.comm.rank)
        self.timeout = max(self.timeout, timeout)

    def note(self, channel: int, call: int) -> None:
        """This rank's part in the call is over."""
        self._calls.pop(channel, None)
        self._calls[channel] = call
        if len(self._calls) > _MOST_CHANNELS:
            del self._calls[next(iter(self._calls))]
            self._complete = False

    def hear(self) -> None:
        """Takes in what has come."""
        with suppress(MPI.Exception):  # a peer may be dead: that is told elsewhere
            while (arriving := next_arriving(self.comm, self._tag, MPI.Status())) is not None:
                arriving.request.Wait()
                with suppress(ValueError, KeyError, TypeError):  # it is not one of ours
                    self._take(arriving.source, json.loads(arriving.buffer.tobytes()))

    def _take(self, sender: int, told: dict[str, Any]) -> None:
        if told["what"] == _CAME:
            self.came.add(sender)
            return
        error = None if told["error"] is None else str(told["error"]).encode()
        calls = {int(channel): int(call) for channel, call in told["calls"]}
        self.left[sender] = Left(calls, bool(told["complete"]), error)
        departed[self.in_world[sender]] = self.left[sender]

    def say_goodbye(self, error: BaseException | None, to: Iterable[int]) -> None:
        notice = None if error is None else to_notice(error).decode()
        calls = list(self._calls.items())
        self._tell({"what": _LEAVES, "calls": calls, "complete": self._complete, "error": notice}, to)

    def say_came(self) -> None:
        """To all, who are going to wait in the first use of the communicator."""
        self._tell({"what": _CAME}, set(range(self.comm.size)) - {self.comm.rank})

    def _tell(self, told: dict[str, Any], to: Iterable[int]) -> None:
        message = json.dumps(told).encode()
        for rank in to:
            with suppress(MPI.Exception):  # it is dead
                self._outbox.add(self.comm.Isend([message, MPI.BYTE], rank, self._tag), message)

    def sweep(self) -> bool:
        """True if all has been sent."""
        with suppress(MPI.Exception):
            return self._outbox.sweep()
        return False

    def unheard(self) -> set[int]:
        """Ranks of COMM_WORLD that say goodbye here, and have not."""
        size, me = self.comm.size, self.comm.rank
        tell = {(me - rank) % size for rank in _distances(size)} & self.peers if size > TELLS_ALL else self.peers
        return {self.in_world[rank] for rank in tell - self.left.keys()}

    def missing(self) -> set[int]:
        """Ranks of COMM_WORLD that calls were made with and that have not left."""
        return {self.in_world[rank] for rank in self.peers} - departed.keys()


def _ranks_in_world(comm: MPI.Intracomm) -> list[int]:
    """By rank of ``comm``."""
    groups = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    ranks = list(groups[0].Translate_ranks(range(comm.size), groups[1]))
    for group in groups:
        group.Free()
    return ranks


departed: dict[int, Left] = {}  # by rank of COMM_WORLD: what it said last, on any communicator
_lines: "weakref.WeakSet[Line]" = weakref.WeakSet()


@cache
def world() -> Line:
    """Of COMM_WORLD itself, not of spardl's duplicate: for ranks that fail before they use that."""
    return Line(MPI.COMM_WORLD)


def lines() -> list[Line]:
    """All that are open."""
    return list(_lines)


def hear_all() -> None:
    """Takes in what has come on any communicator."""
    for line in {world(), *lines()}:
        line.hear()


def unheard() -> set[int]:
    """Ranks of COMM_WORLD of whom a goodbye is still to come, on any communicator."""
    return set().union(*(line.unheard() for line in lines()))


def tell_all(error: BaseException | None, *, everyone: bool) -> None:
    """This rank leaves. ``everyone``: tells all its peers, and with an error also those that it had no call with."""
    covered: set[int] = set()
    for line in lines():
        line.say_goodbye(error, sorted(line.peers) if everyone else told_by(line))
        covered.update(line.in_world[rank] for rank in line.peers)
    if error is not None and everyone:
        strangers = set(range(MPI.COMM_WORLD.size)) - covered - {MPI.COMM_WORLD.rank}
        world().say_goodbye(error, sorted(strangers))
    deadline = time.monotonic() + _SENT_WITHIN
    while time.monotonic() < deadline:
        unsent = [line for line in lines() if not line.sweep()]
        if not unsent:
            return
        time.sleep(1e-4)


def told_by(line: Line) -> list[int]:
    """Whom a rank that leaves in peace tells."""
    size, me = line.comm.size, line.comm.rank
    if size <= TELLS_ALL:
        return sorted(line.peers)
    return sorted({(me + distance) % size for distance in _distances(size)} & line.peers)


def _distances(size: int) -> list[int]:
    return [1 << power for power in range((size - 1).bit_length())]
