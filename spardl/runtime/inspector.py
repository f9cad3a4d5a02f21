"""The stall inspector: before a wait gets so long that it fails, one rank prints who holds everybody up.

A rank that has waited for the warning time tells all others what it waits for, and asks them; those that wait too
answer. After a moment for the answers, the lowest of the waiting ranks prints: rank 0, unless it is the one that is
missing. Nothing is sent, and nothing is kept but who was heard of last, as long as messages come in time.
"""

import logging
import time
from typing import TYPE_CHECKING

from spardl import environment
from spardl.runtime.stall import Heard, Report, Silence, describe, find_missing

if TYPE_CHECKING:
    from spardl.runtime.channel import Channel

log = logging.getLogger("spardl.stall")
_MOST_HEARD = 16  # sources in a report, so that it stays short in collectives where everybody talks to everybody


def warning_time(given: float | None) -> float:
    """Seconds of waiting after which to warn; 0 for never. ``SPARDL_STALL_WARNING`` by default."""
    seconds = environment.STALL_WARNING.number() if given is None else float(given)
    if not seconds >= 0:
        what = "warn_after" if given is not None else environment.STALL_WARNING.name
        raise ValueError(f"{what}: expected seconds >= 0, where 0 stands for no warnings, got {seconds:g}")
    return seconds


class Lookout:
    """What a rank knows of the others on one channel: the last message of each, and who says that it waits."""

    def __init__(self, ranks: int) -> None:
        # In three lists, so that noting a message makes no new object.
        self._calls, self._rounds, self._steps = [0] * ranks, [0] * ranks, [""] * ranks
        self.reports: dict[int, tuple[float, Report]] = {}  # by sender, with the time of arrival

    def note(self, source: int, call: int, round: int, step: str) -> None:
        """A message has come."""
        self._calls[source], self._rounds[source], self._steps[source] = call, round, step

    def hear(self, sender: int, report: Report | None) -> None:
        """A rank waits, or goes on."""
        if report is None:
            self.reports.pop(sender, None)
        else:
            self.reports[sender] = (time.monotonic(), report)

    def forget(self, call: int) -> None:
        """That call is over."""
        if self.reports:
            self.reports = {sender: told for sender, told in self.reports.items() if told[1].call > call}

    def heard(self, call: int, peer: int) -> dict[int, Heard]:
        """Of ``peer``, and of those that have sent something in this call or the one before."""
        latest = [source for source, last in enumerate(self._calls) if last >= call - 1][-_MOST_HEARD:]
        wanted = {*latest, peer} if peer >= 0 else latest
        return {
            source: Heard(self._calls[source], self._rounds[source], self._steps[source])
            for source in wanted
            if self._calls[source]
        }


class Inspector:
    """Of one call that has waited long, or of which others say so. ``look`` at it now and then."""

    def __init__(self, channel: "Channel", call: int, name: str, warn_after: float, timeout: float) -> None:
        self._channel, self._call, self._name = channel, call, name
        self._warn_after, self._timeout = warn_after, timeout
        self._moment = answering_time(warn_after)
        self._began = time.monotonic()
        self._told: Report | None = None
        self._told_at = self._told_since = 0.0
        self._asks_at: float | None = None
        self._speaks_at: float | None = None
        self._spoke = False

    def look(self, now: float, since: float, peer: int, step: str) -> None:
        """This rank has waited for ``peer`` since ``since``; tells, asks, answers and prints when it is time to."""
        self._began = min(self._began, since)
        moved_on = self._told is not None and since != self._told_since
        if self._asks_at is None or moved_on:
            self._asks_at = since + self._warn_after - self._moment
        asks, is_asked = now >= self._asks_at, self._is_asked()
        if asks or is_asked or moved_on:
            heard = self._channel.lookout.heard(self._call, peer)
            self._told = Report(self._call, peer, step, now - since, asks, heard)
            self._told_at, self._told_since = now, since
            self._channel.tell_wait(self._told)
        if asks or is_asked:
            self._asks_at = now + self._warn_after
            self._speaks_at = now + self._moment
        if self._speaks_at is not None and now >= self._speaks_at:
            self._speaks_at = None
            self._speak(now)

    def go_on(self) -> None:
        """The call has come to its end after all."""
        if self._told is not None:
            self._channel.tell_wait(None)
        if self._spoke:
            waited = time.monotonic() - self._began
            log.warning("spardl: %s, call %d, went on after %.3g s.", self._name, self._call, waited)

    def _is_asked(self) -> bool:
        """A rank asks that has not had an answer just now."""
        answered = self._told_at + self._moment
        reports = self._channel.lookout.reports.values()
        return any(told.asks and came > answered for came, told in reports)

    def _speak(self, now: float) -> None:
        assert self._told is not None
        group = self._channel.group
        waits, silent = {group.me: self._told}, {}
        waited = self._told.seconds + now - self._told_at
        for sender, (came, report) in self._channel.lookout.reports.items():
            if came >= now - 3 * self._moment:
                waits[sender] = report
                waited = max(waited, report.seconds + now - came)
            else:
                silent[sender] = Silence(report, now - came)
        if group.me != min(waits):
            return
        missing = tuple(group.ranks[rank] for rank in find_missing(group.size, waits))
        named = group.home.named_missing
        if now < named.get(missing, -self._warn_after) + self._warn_after / 2:
            return  # another collective in flight waits for the same ranks, and has said so
        named[missing] = now
        self._spoke = True
        who = group.ranks, group.hosts
        log.warning("%s", describe(self._name, self._call, waited, self._timeout, *who, waits, silent))


def answering_time(warn_after: float) -> float:
    """Seconds that others have to answer in before someone prints; the warning time includes them."""
    return min(0.5, warn_after / 4)
