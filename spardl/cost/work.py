"""How much work every algorithm gives the kernels of rank 0, in elements and entries.

Estimates: which entries are touched twice, or found in a cache, is beyond a model that is to be read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from spardl import schedule
from spardl.collectives.spardl import choose_sag
from spardl.cost.traffic import Message, Setting, Sparse, Transfer

Work: TypeAlias = Counter[str]  # kernel, as in a profile's gamma → elements or entries
WorkOf: TypeAlias = Callable[[Setting, Sequence[Transfer]], Work]

_CANDIDATES = 1.2  # entries that pass last time's thresholds, for each that is selected


def work(algorithm: str, setting: Setting, rounds: Sequence[Transfer]) -> Work:
    """All of one reduce with these rounds."""
    total = _WORK[algorithm](setting, rounds)
    total["round"] += len(rounds)
    return total


def beside_first_round(algorithm: str, s: Setting) -> Work:
    """The part of it that is done while the first round's messages travel: SparDL accumulates what it sends later."""
    rounds = schedule.spar_reduce_scatter(s.ranks // s.teams, 0) if algorithm == "spardl" else []
    return Counter({"accumulate": s.size - s.size * s.teams * len(rounds[0].sends) // s.ranks} if rounds else {})


def kernel_seconds(work: Work, gamma: Mapping[str, float]) -> float:
    """``gamma``: of a profile."""
    return sum(amount * gamma[kernel] for kernel, amount in work.items() if amount)


def _entries(messages: Iterable[Message | None]) -> tuple[int, int]:
    """How many entries these messages carry, and in how many frames."""
    loads = [load for message in messages if message is not None for load in message.loads]
    return sum(load.entries for load in loads if isinstance(load, Sparse)), len(loads)


def _spardl_work(s: Setting, rounds: Sequence[Transfer]) -> Work:
    p = s.ranks // s.teams
    scatter, between = schedule.ceil_log2(p), len(rounds) - 2 * schedule.ceil_log2(p)
    scattered, _ = _entries(t.received for t in rounds[:scatter])
    exchanged, _ = _entries(t.received for t in rounds[scatter : scatter + between])
    own = s.k // p
    if choose_sag(s.sag, s.teams) == "b":
        own = -(-own // s.teams)  # B-SAG's width
    sent, _ = _entries(t.sent for t in rounds[: scatter + between])
    received, frames = _entries(t.received for t in rounds)
    return Counter(
        {
            "call": 1,
            "accumulate": s.size,
            "select": round(_CANDIDATES * (s.k - s.k // p + own)) + scattered,
            "overlay": scattered,
            "add": exchanged + own * between,
            "correct" if s.teams == 1 else "settle": 2 * s.k,  # teams leave shares behind, which are added at once
            "pack": sent + own,
            "unpack": received,
            "frame": p + 2 * frames,  # blocks to select from, to write and to read
        }
    )


def _dense_work(phases_of: Callable[[int, int], schedule.Phases]) -> WorkOf:
    def work(s: Setting, rounds: Sequence[Transfer]) -> Work:
        phases = phases_of(s.ranks, 0)
        arriving = [step.receives for step in phases.reduce if not isinstance(step, schedule.Give)]
        added = sum(s.size * len(blocks) // phases.blocks for blocks in arriving)
        return Counter({"call": 1, "check": s.size, "add_dense": added})

    return work


def _dense_mpi_work(s: Setting, rounds: Sequence[Transfer]) -> Work:
    return Counter({"call": 1, "check": s.size})


def _own_topk_work(s: Setting) -> Work:
    selected = {"select": round(_CANDIDATES * s.k), "settle": s.k, "pack": s.k}
    return Counter({"call": 1, "accumulate": s.size, "frame": 1, **selected})


def _topk_a_work(s: Setting, rounds: Sequence[Transfer]) -> Work:
    received, frames = _entries(t.received for t in rounds)
    total = _own_topk_work(s)
    total.update({"unpack": received, "add": received + s.k, "frame": frames})
    return total


def _topk_dsa_work(s: Setting, rounds: Sequence[Transfer]) -> Work:
    split, _ = _entries(t.received for t in rounds[: s.ranks - 1])
    received, frames = _entries(t.received for t in rounds)
    total = _own_topk_work(s)
    total.update({"unpack": received, "add": split + s.k // s.ranks, "frame": 2 * frames})
    total.update({"pack": min(s.size, s.k * s.ranks) // s.ranks})
    return total


def _gtopk_work(s: Setting, rounds: Sequence[Transfer]) -> Work:
    merges = schedule.ceil_log2(s.ranks)
    total = _own_topk_work(s)
    total.update({"unpack": s.k * merges, "add": 2 * s.k * merges, "select": 2 * s.k * merges, "frame": 2 * merges})
    total.update({"pack": s.k, "settle": s.k})
    return total


def _oktopk_work(s: Setting, rounds: Sequence[Transfer]) -> Work:
    split, _ = _entries(t.received for t in rounds[: s.ranks - 1])
    received, frames = _entries(t.received for t in rounds)
    total = _own_topk_work(s)
    total.update({"unpack": received, "add": split + s.k // s.ranks, "select": s.k // s.ranks, "settle": s.k})
    total.update({"frame": 2 * frames})
    return total


_WORK: dict[str, WorkOf] = {
    "spardl": _spardl_work,
    "dense_ring": _dense_work(schedule.dense_ring),
    "dense_rabenseifner": _dense_work(schedule.dense_rabenseifner),
    "dense_recursive_doubling": _dense_work(schedule.dense_recursive_doubling),
    "dense_mpi": _dense_mpi_work,
    "topk_a": _topk_a_work,
    "topk_dsa": _topk_dsa_work,
    "gtopk": _gtopk_work,
    "oktopk": _oktopk_work,
}
