"""Who holds up a collective, in words: from what the waiting ranks report, and nothing else.

Ranks that wait say for whom. Whoever is awaited and does not wait itself is missing: stopped, dead, or busy with
something else. Those that wait for someone who waits are not to blame.

Inside a group ranks are known by their positions; ``ranks`` are the numbers that people know them by.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

ALL = -1  # in place of a peer
_MOST_LISTED = 8


class Heard(NamedTuple):
    """The last message that a rank had of another; later ones are greater."""

    call: int
    round: int
    step: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a rank that waits tells the others."""

    call: int
    peer: int  # whom it waits for, or ALL
    step: str
    seconds: float  # it has waited so far
    asks: bool  # whether the others shall answer with theirs
    heard: Mapping[int, Heard]  # by source

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self) | {"heard": [(source, *h) for source, h in self.heard.items()]}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Report":
        told: dict[str, Any] = json.loads(data)
        return cls(**told | {"heard": {source: Heard(*heard) for source, *heard in told["heard"]}})

    def whom(self, ranks: Sequence[int]) -> str:
        return name_peer(self.peer, ranks)

    @property
    def where(self) -> str:
        return f"{self.step} of call {self.call}"


class Silence(NamedTuple):
    """A report that was not renewed when its sender was asked to."""

    report: Report
    seconds: float  # since it came


class Stall(NamedTuple):
    """What a rank whose time is nearly up tells the others; positions. Those of its host it can see at work, or not."""

    waits_for: int
    step: str
    seconds: float  # it has waited
    gone: tuple[int, ...] = ()  # stopped or dead
    runs: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Stall":
        waits_for, step, seconds, gone, runs = json.loads(data)
        return cls(waits_for, step, seconds, tuple(gone), tuple(runs))


def answering_grace(timeout: float) -> float:
    """Seconds that ranks have to say that they wait, too, before a wait fails; the time limit includes them."""
    return min(5.0, timeout / 4)


def longer_limit() -> str:
    return "If it takes longer on purpose, raise the limit: timeout=… or SPARDL_TIMEOUT, in seconds."


def find_culprits(size: int, stalls: Mapping[int, Stall]) -> tuple[int, ...]:
    """Whom to name, when those in ``stalls`` have told of theirs.

    Whoever is seen stopped or dead; else who is silent and is not seen at work; else who is silent. If all have told,
    those who came last: the others had nearly run out of time by then.
    """
    silent = set(range(size)) - stalls.keys()
    gone = {rank for told in stalls.values() for rank in told.gone}
    runs = {rank for told in stalls.values() for rank in told.runs}
    longest = max(told.seconds for told in stalls.values())
    late = {rank for rank, told in stalls.items() if told.seconds < longest / 2}
    return blamed(silent, gone, runs) or tuple(sorted(late))


def blamed(silent: set[int], gone: set[int], runs: set[int]) -> tuple[int, ...]:
    """Of the silent: those that are seen stopped or dead; else those that are not seen at work; else all."""
    return tuple(sorted((silent & gone) or (silent - runs) or silent))


def name_peer(peer: int, ranks: Sequence[int]) -> str:
    return "all ranks" if peer == ALL else f"rank {ranks[peer]}"


def find_missing(size: int, waits: Mapping[int, Report]) -> dict[int, list[int]]:
    """Who of a group of this size is awaited without waiting, with those that wait for it."""
    missing: dict[int, list[int]] = {}
    for me, report in sorted(waits.items()):
        for peer in range(size) if report.peer == ALL else (report.peer,):
            if peer not in waits:
                missing.setdefault(peer, []).append(me)
    return dict(sorted(missing.items()))


def describe(
    name: str,
    call: int,
    waited: float,
    timeout: float,
    ranks: Sequence[int],
    hosts: Sequence[str],
    waits: Mapping[int, Report],
    silent: Mapping[int, Silence],
) -> str:
    """A few lines for people: who is missing, in which round, what was last heard of it, and where it runs.

    ``ranks`` and ``hosts`` have one for every position, hosts empty where they are not known; ``waits`` has the reports
    that are up to date, at least one; ``silent`` those that are not. Some ranks may be a call ahead of others.
    """
    missing = find_missing(len(hosts), waits)
    lines = [f"spardl: {name}, call {call}, has waited for {waited:.3g} s; it fails at {timeout:g} s."]
    for peer, waiting in list(missing.items())[:_MOST_LISTED]:
        where = f" on host {hosts[peer]}" if hosts[peer] else ""
        steps = _listed(f"rank {ranks[other]} in {waits[other].where}" for other in waiting)
        sign = _last_sign(peer, ranks, waits, silent)
        lines.append(f"  rank {ranks[peer]}{where} is missing: awaited by {steps}; {sign}")
    if len(missing) > _MOST_LISTED:
        unsaid = [str(ranks[peer]) for peer in list(missing)[_MOST_LISTED:]]
        lines.append(f"  … and {len(unsaid)} more are missing: ranks {_listed(unsaid)}")
    if not missing:
        lines.append("  no rank is missing, they wait for each other: does every rank make the same calls?")
    if behind := [other for other in waits if not missing or waits[other].peer not in (ALL, *missing)]:
        reports = ((ranks[other], waits[other]) for other in sorted(behind))
        told = _listed(f"rank {rank} for {report.whom(ranks)} in {report.where}" for rank, report in reports)
        lines.append(f"  waiting {'behind' if missing else 'in a circle'}: {told}")
    return "\n".join(lines)


def timed_out(
    name: str, timeout: float, ranks: Sequence[int], culprits: Sequence[int], stalls: Mapping[int, Stall]
) -> str:
    """The error's text. ``culprits``: as ``find_culprits`` has them."""
    who = " and ".join(f"rank {ranks[peer]}" for peer in culprits) or "no rank is missing, but one of them"
    if not any(peer in stalls for peer in culprits):
        what = f"did not answer within {timeout:g} s"
    else:
        what = f"came too late for a limit of {timeout:g} s"
    concerned = {other: told for other, told in sorted(stalls.items()) if told.waits_for in (ALL, *culprits)}
    waiting = _listed(
        f"rank {ranks[other]} waits for {name_peer(told.waits_for, ranks)} in {told.step}"
        for other, told in (concerned or stalls).items()
    )
    is_there = _is_there(culprits, stalls)
    return f"{name}: {who} {what} ({waiting}). {is_there} {longer_limit()}"


def _is_there(culprits: Sequence[int], stalls: Mapping[int, Stall]) -> str:
    gone = {rank for told in stalls.values() for rank in told.gone}
    runs = {rank for told in stalls.values() for rank in told.runs}
    if culprits and gone.issuperset(culprits):
        return "Its process is stopped or dead."
    if culprits and runs.issuperset(culprits):
        return "Its process runs: is it busy with something else, or making other calls?"
    return "Is every rank making this call?"


def _last_sign(peer: int, ranks: Sequence[int], waits: Mapping[int, Report], silent: Mapping[int, Silence]) -> str:
    """Its own last report, or else the last message that any waiting rank has had of it."""
    if peer in silent:
        report, seconds = silent[peer]
        return f"{seconds:.3g} s ago it waited for {report.whom(ranks)} in {report.where}, and has not answered since"
    heard = {listener: report.heard[peer] for listener, report in waits.items() if peer in report.heard}
    if not heard:
        return "nothing has come from it yet"
    listener = max(heard, key=lambda other: heard[other])
    last = heard[listener]
    step = last.step or f"round {last.round - 1}"
    return f"its last message was for {step} of call {last.call}, to rank {ranks[listener]}"


def _listed(items: Iterable[str]) -> str:
    everything = list(items)
    more = len(everything) - _MOST_LISTED
    return ", ".join(everything[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
