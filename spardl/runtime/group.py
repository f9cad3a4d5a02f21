"""The ranks that a collective runs on, and a place on their communicator where no other messages are."""

import socket
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

from spardl import timeline
from spardl.runtime import farewell, goodbye, launch
from spardl.runtime.goodbye import Line
from spardl.runtime.library import MPI
from spardl.runtime.meeting import Acquaintance, duplicate, introduce
from spardl.runtime.neighbour import NOBODY, State, state
from spardl.runtime.sums import Sums

CommLike: TypeAlias = MPI.Intracomm | tuple[MPI.Intracomm, Sequence[int]]

# Tags come in pairs, data and control. Those below FIRST_FREE serve calls that have no object of their own: one pair
# for the whole communicator, the others for lists of ranks, by checksum. Pairs are numbered without end; when there are
# no more tags, those of objects that are gone are used again, in another generation.
FIRST_FREE = 1024
_BAND = 1 << 15  # pairs of tags at the top of the tag space, used where the communicator is the caller's own
_GENERATIONS = 1 << 16


@dataclass(slots=True)
class Home:
    """What this process keeps for one communicator, as an attribute of it."""

    line: Line  # of the communicator itself
    private: MPI.Intracomm | None = None
    private_line: Line | None = None
    sums: list[Sums] = field(default_factory=list)  # duplicates for the library's own collectives
    next_free: int = FIRST_FREE
    in_use: "weakref.WeakValueDictionary[int, Any]" = field(default_factory=weakref.WeakValueDictionary)  # by data tag
    shared: dict[Any, Any] = field(default_factory=dict)  # channels for calls without an object
    measured: dict[tuple[int, ...], Any] = field(default_factory=dict)  # profiles, by the ranks they are of
    known: tuple[Acquaintance, ...] = ()  # by rank, once the whole communicator was used
    named_missing: dict[tuple[int, ...], float] = field(default_factory=dict)  # ranks, and when a warning named them


@dataclass(frozen=True, slots=True)
class Group:
    """P ranks of a communicator; ``me`` is this process's position among them."""

    comm: MPI.Intracomm  # where the messages go
    ranks: tuple[int, ...]  # positions to ranks of comm
    me: int
    home: Home
    isolated: bool  # comm is ours alone

    @property
    def size(self) -> int:
        return len(self.ranks)

    def subgroup(self, members: Sequence[int]) -> "Group":
        """Some of these ranks, by their positions, of which this process is one."""
        ranks = tuple(self.ranks[member] for member in members)
        return replace(self, ranks=ranks, me=members.index(self.me))

    @property
    def line(self) -> Line:
        """Where its ranks say goodbye."""
        return self.home.private_line if self.isolated and self.home.private_line is not None else self.home.line

    @property
    def hosts(self) -> list[str]:
        """By position; empty where it is not known."""
        return [self.home.known[rank].host if self.home.known else "" for rank in self.ranks]

    def neighbours(self) -> dict[int, State]:
        """Whether the processes of other ranks on this host run, by position."""
        known = {at: self.home.known[rank].process for at, rank in enumerate(self.ranks) if self.home.known}
        return {at: state(process) for at, process in known.items() if process != NOBODY and at != self.me}

    @property
    def bells(self) -> list[bytes | None]:
        """By position: the names of those within reach."""
        return [self.home.known[rank].bell if self.home.known else None for rank in self.ranks]

    def tags(self, pair: int) -> tuple[int, int]:
        """The data and control tag of a pair."""
        limit = self._tag_limit
        recycled = max(0, pair - FIRST_FREE) % self._recyclable
        data = limit - self._band + 2 * (min(pair, FIRST_FREE) + recycled)
        return data, data + 1

    def generation(self, pair: int) -> int:
        """How often the tags of this pair were used before; below FIRST_FREE, what tells lists of ranks apart."""
        if 0 < pair < FIRST_FREE:
            return zlib.crc32(repr(self.ranks).encode()) >> 16
        return max(0, pair - FIRST_FREE) // self._recyclable % _GENERATIONS

    def channel_key(self, pair: int) -> int:
        """A number that only the channel of this pair, and of these ranks, ever has."""
        return pair * _GENERATIONS + self.generation(pair)

    def first_unused(self, pair: int) -> int | None:
        """The first pair from this one on whose tags no object of this process uses; None if there is none."""
        candidates = range(pair, pair + self._recyclable)
        return next((other for other in candidates if self.tags(other)[0] not in self.home.in_use), None)

    def is_recycled(self, pair: int) -> bool:
        """Whether its tags have been used before."""
        return pair >= FIRST_FREE + self._recyclable

    @property
    def _tag_limit(self) -> int:
        return int(self.comm.Get_attr(MPI.TAG_UB) or 32767) + 1

    @property
    def _band(self) -> int:
        """How many tags are ours, at the top of the range."""
        return self._tag_limit if self.isolated else min(self._tag_limit // 2, 2 * _BAND)

    @property
    def _recyclable(self) -> int:
        """How many pairs there are for objects; the last of all is for goodbyes."""
        return self._band // 2 - FIRST_FREE - 1

    def shared_pair(self) -> int:
        if self.ranks == tuple(range(self.comm.size)):
            return 0
        return 1 + zlib.crc32(repr(self.ranks).encode()) % (FIRST_FREE - 1)


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval(delete_fn=_forget, nopython=False)


def _forget(_comm: MPI.Comm, _keyval: int, home: Home) -> None:
    for line in (home.line, home.private_line):
        if line is not None:
            line.close()
    if not MPI.Is_finalized():
        for sums in home.sums:
            sums.comm.Free()
        if home.private is not None:
            home.private.Free()


def resolve(comm: CommLike, timeout: float) -> Group:
    """The group meant by ``comm``: a communicator, or a pair of one and a list of its ranks.

    A whole communicator is duplicated once (collectively, on first use), so that our messages never meet the caller's.
    A list of ranks creates nothing: its messages use the duplicate if there is one, else tags at the top of the range.
    """
    if isinstance(comm, tuple) and len(comm) == 2 and isinstance(comm[0], MPI.Intracomm):
        return _listed(*comm, timeout)
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm: expected an mpi4py communicator or (communicator, list of ranks), got {comm!r}")
    home = _home(comm)
    if home.private is None:
        launch.require_company()
        home.line.uses(range(comm.size), timeout)
        private = duplicate(comm, timeout, home.line)
        home.known = introduce(private, timeout, home.line)
        home.private, home.private_line = private, Line(private)
        home.line.peers.clear()  # from here on they meet on the other
        farewell.before_mpi_ends()
    group = Group(home.private, tuple(range(comm.size)), comm.rank, home, isolated=True)
    group.line.uses(group.ranks, timeout)
    return group


def _listed(comm: MPI.Intracomm, listed: Sequence[int], timeout: float) -> Group:
    ranks = tuple(int(rank) for rank in listed)
    if len(set(ranks)) != len(ranks) or not all(0 <= rank < comm.size for rank in ranks):
        raise ValueError(f"comm: expected distinct ranks between 0 and {comm.size - 1}, got {list(listed)}")
    if comm.rank not in ranks:
        raise ValueError(f"comm: this process is rank {comm.rank}, which is not in the list {list(listed)}")
    home = _home(comm)
    group = Group(home.private or comm, ranks, ranks.index(comm.rank), home, isolated=home.private is not None)
    group.line.uses(ranks, timeout)
    return group


def _home(comm: MPI.Intracomm) -> Home:
    home = comm.Get_attr(_keyval())
    if home is None:
        timeline.begin(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, socket.gethostname())
        home = Home(goodbye.world() if comm == MPI.COMM_WORLD else Line(comm))
        comm.Set_attr(_keyval(), home)
    assert isinstance(home, Home)
    return home
