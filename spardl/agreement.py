"""Ranks compare notes before they work together: all raise the same error, or none does."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from spardl import revision
from spardl.collectives.bruck import bruck
from spardl.effects import Collective
from spardl.runtime.channel import Channel
from spardl.runtime.group import Group
from spardl.runtime.inspector import warning_time
from spardl.runtime.library import MPI
from spardl.runtime.meeting import duplicate
from spardl.runtime.mpi import Task, shared_channel
from spardl.runtime.sums import Sums

Checked = TypeVar("Checked")


def open_channel(
    group: Group, config: Callable[[], dict[str, Any]], timeout: float, what: str, warn_after: float | None = None
) -> Channel:
    """A channel for one object that all ranks of the group build now.

    ``config`` checks this rank's arguments and returns what all ranks must have alike; if it raises on one rank, that
    rank raises its error and the others raise one that quotes it.
    """
    error: Exception | None = None
    mine: dict[str, Any] = {"code": revision.describe()}
    warning = 0.0
    try:
        warning = warning_time(warn_after)
        mine |= {"config": config(), "next": group.home.next_free}
    except (ValueError, TypeError) as caught:
        error = caught
        mine["error"] = f"{caught}"
    gathered = gather_json(group, mine, timeout, f"building {what}")
    codes = [told.get("code") for told in gathered]
    require_same_code(codes, what, group.ranks)  # first: other code may tell other things
    if error is not None:
        raise error
    _raise_disagreement(gathered, what, group.ranks)
    pair = max(told["next"] for told in gathered)
    if group.is_recycled(pair):
        pair = _unused_pair(group, pair, timeout, what)
    group.home.next_free = pair + 1
    return Channel(group, pair, warning)


def _unused_pair(group: Group, pair: int, timeout: float, what: str) -> int:
    """The first pair of tags, from ``pair`` on, that no object of any rank uses."""
    while True:
        told = gather_json(group, group.first_unused(pair), timeout, f"building {what}")
        if None in told:
            raise RuntimeError(
                f"{what}: all tags of this MPI are in use by other objects of rank {group.ranks[told.index(None)]}. "
                "Drop objects that are not needed any more, or build some on a communicator of their own."
            )
        if min(told) == max(told):
            return int(told[0])
        pair = max(told)


def prepare_sums(channel: Channel, timeout: float) -> None:
    """Gives the channel a communicator for its ``sum``. All ranks do it, and their group is a whole communicator."""
    group = channel.group
    made = group.home.sums
    free = [sums.number for sums in made if sums.is_free]
    told = gather_json(group, free, timeout, "preparing sums of the MPI library")
    common = set(free).intersection(*told)
    if not common:
        made.append(Sums(duplicate(group.comm, timeout, group.line), len(made)))
    channel.sums = made[min(common, default=-1)]
    channel.sums.lend_to(channel)


def gather_hosts(group: Group, timeout: float) -> list[str]:
    """By rank, the name of the host that it is on."""
    return gather_json(group, MPI.Get_processor_name(), timeout, "comparing hosts")


def gather_json(group: Group, mine: Any, timeout: float, name: str) -> list[Any]:
    """What every rank has to say, by rank."""
    return Task(shared_channel(group), _gather_json(group, mine), timeout, name).wait()


def raise_together(group: Group, problem: Exception | None, timeout: float, call: str) -> None:
    """Raises this rank's ``problem``, or an error that quotes another rank's; returns if no rank has one."""
    told = gather_json(group, None if problem is None else str(problem), timeout, call)
    if problem is not None:
        raise problem
    for rank, text in zip(group.ranks, told, strict=True):
        if text is not None:
            raise RuntimeError(f"{call} failed on rank {rank}: {text}")


def check_together(
    group: Group,
    check: Callable[[], Checked],
    timeout: float,
    call: str,
    alike: Callable[[Checked], dict[str, Any]] = lambda _: {},
) -> Checked:
    """What ``check`` returns; if that raises on one rank, all ranks raise ValueError.

    ``check`` looks at what may be damaged, so whatever it raises counts. ``alike`` are parts of what it found, by name,
    that all ranks must have in common.
    """
    problem: ValueError | None = None
    mine: dict[str, Any] = {}
    try:
        found = check()
        mine["config"] = alike(found)
    except ValueError as error:
        problem = error
    except Exception as error:  # damage of a kind that no check has foreseen
        problem = ValueError(f"{call}: malformed: {type(error).__name__}: {error}")
    if problem is not None:
        mine["error"] = str(problem)
    gathered = gather_json(group, mine, timeout, call)
    if problem is not None:
        raise problem
    for rank, told in zip(group.ranks, gathered, strict=True):
        if "error" in told:
            raise ValueError(f"{call} failed on rank {rank}: {told['error']}")
    differing = _differences([told["config"] for told in gathered], group.ranks)
    if differing:
        raise ValueError(f"{call}: the ranks disagree on {differing}. Load states that were saved together.")
    return found


def fail_together(group: Group, problem: Exception, timeout: float, call: str) -> None:
    """In place of ``raise_together``, where this rank does not come to: the others raise an error that quotes it."""
    Task(shared_channel(group), _gather_json(group, None), timeout, call).abort(problem)


def _gather_json(group: Group, mine: Any) -> Collective[list[Any]]:
    text = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    frames = yield from bruck(range(group.size), group.me, text)
    return [json.loads(frame.tobytes()) for frame in frames]


def _raise_disagreement(gathered: list[dict[str, Any]], what: str, ranks: Sequence[int]) -> None:
    for rank, told in zip(ranks, gathered, strict=True):
        if "error" in told:
            raise ValueError(f"rank {rank} was given wrong arguments: {told['error']}")
    differing = _differences([told["config"] for told in gathered], ranks)
    if differing:
        raise ValueError(f"{what}: the ranks disagree on {differing}. Build it with the same arguments everywhere.")


def _differences(configs: list[dict[str, Any]], ranks: Sequence[int]) -> str:
    """E.g. ``k: 2 on ranks 0, 1 but 3 on rank 2``; empty if there are none."""
    names = [name for name in configs[0] if any(config[name] != configs[0][name] for config in configs)]
    return "; ".join(f"{name}: {by_value([config[name] for config in configs], ranks)}" for name in names)


def require_same_code(codes: list[Any], what: str, ranks: Sequence[int]) -> None:
    """Raises if ranks have another spardl: ``revision.describe()`` of each, or None of one that did not tell yet."""
    if len(set(codes)) > 1:
        raise RuntimeError(
            f"{what}: the ranks run different code of spardl: {by_value(codes, ranks)}. Install the same one on every "
            "host; `spardl doctor`, launched alike, tells where each comes from."
        )


def by_value(values: list[Any], ranks: Sequence[int] | None = None) -> str:
    """E.g. ``2 on ranks 0, 1 but 3 on rank 2``; ``ranks``: who they are of, if not of all from 0 on."""
    holders: dict[str, list[int]] = {}
    for rank, value in zip(range(len(values)) if ranks is None else ranks, values, strict=True):
        holders.setdefault(repr(value), []).append(rank)
    return " but ".join(
        f"{value} on rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}" for value, who in holders.items()
    )
