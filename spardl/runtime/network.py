"""The network of virtual time: when a message arrives, given all that has been sent before. Integer nanoseconds.

Every host has a port to the outside and one from it, which carry one message at a time. A message leaves when its
host's outgoing port is free and occupies it; its first byte arrives a latency later, and occupies the other host's
incoming port, in the order in which first bytes arrive. Bytes are passed on as they come: a message that meets no other
takes the latency and the longer of its times at both ports, not their sum.

Ranks of one host share its ports. Among themselves they copy through memory: every rank has a port each way for that,
and a message within a host meets none of those to other hosts. What a rank sends itself takes no time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from spardl.quantities import parse_rate, parse_time

_NANOSECONDS = 10**9


def nanoseconds(seconds: float) -> int:
    return round(seconds * _NANOSECONDS)


class Busy(Protocol):
    """How long a message of so many bytes occupies a port, in nanoseconds."""

    def busy(self, nbytes: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Port:
    """How long a message occupies a port, in nanoseconds. Per message: what sender or receiver has to do for it."""

    per_message: int = 0
    per_byte: float = 0.0

    def busy(self, nbytes: int) -> int:
        return self.per_message + round(nbytes * self.per_byte)

    @classmethod
    def of_rate(cls, rate: str, overhead: str = "0us") -> "Port":
        """E.g. of 1gbit."""
        return cls(nanoseconds(parse_time(overhead)), 8 * _NANOSECONDS / parse_rate(rate))


FREE = Port()


@dataclass(frozen=True, slots=True)
class Network:
    """Ranks on hosts, and what is between them."""

    hosts: tuple[int, ...]  # by rank: the number of its host
    ports: tuple[Busy, ...]  # by host
    latency: int = 0  # nanoseconds from host to host,
    latencies: Mapping[tuple[int, int], int] = field(default_factory=dict)  # but between these hosts
    memory: Port = FREE  # between ranks of one host
    memory_latency: int = 0
    alone: Busy | None = None  # any port while no other one sends; ``ports`` are what they are when all do
    library: Busy | None = None  # the MPI library's own Allreduce, by bytes of the vector; None: the best there can be

    def __post_init__(self) -> None:
        unknown = [host for host in self.hosts if not 0 <= host < len(self.ports)]
        if unknown:
            raise ValueError(f"network: expected hosts from 0 to {len(self.ports) - 1}, got {unknown[0]}")

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    def allreduce(self, nbytes: int, ranks: int) -> int:
        """How long the library takes to sum vectors of so many bytes when all ranks are there."""
        if self.library is not None:
            return self.library.busy(nbytes)
        rounds = 2 * (ranks - 1).bit_length()
        moved = 2 * (ranks - 1) * nbytes // max(1, ranks)
        start, end = (max(port.busy(size) for port in self.ports) for size in (0, moved))
        return rounds * (self.latency + start) + end - start


def cluster(
    ranks: int,
    rate: str | Sequence[str] = "1gbit",
    latency: str = "50us",
    *,
    overhead: str = "0us",
    ranks_per_host: int = 1,
    memory_rate: str = "40gbit",
    memory_latency: str = "1us",
) -> Network:
    """A network of equal hosts, or with a rate for each; the last may have fewer ranks."""
    if ranks < 1 or ranks_per_host < 1:
        raise ValueError(f"cluster: expected at least one rank, and one per host, got {ranks} and {ranks_per_host}")
    hosts = tuple(rank // ranks_per_host for rank in range(ranks))
    rates = [rate] * (hosts[-1] + 1) if isinstance(rate, str) else rate
    if len(rates) != hosts[-1] + 1:
        raise ValueError(f"cluster: expected a rate for all {hosts[-1] + 1} hosts, or one for each, got {len(rates)}")
    return Network(
        hosts,
        tuple(Port.of_rate(one, overhead) for one in rates),
        nanoseconds(parse_time(latency)),
        memory=Port.of_rate(memory_rate),
        memory_latency=nanoseconds(parse_time(memory_latency)),
    )


class Passage(NamedTuple):
    """A message that has left."""

    left: int  # when its first byte did
    first: int  # when that arrives
    last: int  # when its last byte arrives at the earliest
    origin: int  # the port from which,
    port: int  # the one to which,
    busy: int  # and how long it occupies that


class Ports:
    """What is going on in a network: until when every port is occupied."""

    def __init__(self, network: Network) -> None:
        self._network = network
        count = len(network.ports) + network.ranks  # those of hosts, then those of ranks
        self._leaving, self._arriving = [0] * count, [0] * count
        self._on_their_way = [0] * count  # messages, by outgoing port
        self._sending = 0  # ports that have any

    def leave(self, sender: int, to: int, nbytes: int, now: int) -> Passage:
        """A message is handed in."""
        network = self._network
        here, there = network.hosts[sender], network.hosts[to]
        if here == there:
            here, there = len(network.ports) + sender, len(network.ports) + to
            busy = arriving = network.memory.busy(nbytes)
            latency = network.memory_latency
        else:
            self._count(here, 1)
            busy, arriving = self._busy(here, nbytes), self._busy(there, nbytes)
            latency = network.latencies.get((here, there), network.latency)
        left = max(now, self._leaving[here])
        self._leaving[here] = left + busy
        return Passage(left, left + latency, left + busy + latency, here, there, arriving)

    def _count(self, port: int, change: int) -> None:
        before = self._on_their_way[port]
        self._on_their_way[port] = before + change
        self._sending += (before + change > 0) - (before > 0)

    def _busy(self, host: int, nbytes: int) -> int:
        network, together = self._network, self._network.ports[host].busy(nbytes)
        if network.alone is None:
            return together
        alone, others = network.alone.busy(nbytes), len(network.ports) - 1
        return alone + (together - alone) * (self._sending - 1) // others

    def arrive(self, passage: Passage) -> tuple[int, int]:
        """Its first byte is there; from when on it occupies the port, and when its last byte will be there."""
        begins = max(passage.first, self._arriving[passage.port])
        self._arriving[passage.port] = begins + passage.busy
        return begins, max(begins + passage.busy, passage.last)

    def leave_behind(self, passage: Passage) -> None:
        """Its last byte is there."""
        if passage.origin < len(self._network.ports):
            self._count(passage.origin, -1)
