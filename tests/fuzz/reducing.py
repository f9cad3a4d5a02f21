"""Damaged messages through whole reduces of every collective, in loopback."""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from damage import IN_PLACE, Bytes
from tally import CRASHED, EQUAL, REFUSED, SOUND, WRONG, Tally

from spardl import NonFiniteGradient, WireError, kernels, schedule
from spardl.collectives.reducer import Reducer
from spardl.collectives.rivals import DENSE, RIVALS
from spardl.collectives.spardl import SparDL
from spardl.effects import FRONT_BYTES
from spardl.errors import Deadlock, DtypeDisagreement, OutOfStep
from spardl.runtime import envelope
from spardl.runtime.loopback import Loopback
from spardl.sparse import SparseVector
from spardl.wire import Codec

SIZE, K, RANKS = 600, 60, 6
UNSIGNED = b"unsigned"


def _spardl(teams: int, sag: str) -> Callable[..., Reducer]:
    def make(size: int, k: int, *, ranks: int, **common: Any) -> Reducer:
        return SparDL(size, k, layout=schedule.Teams(ranks, teams), sag=sag, **common)

    return make


COLLECTIVES: dict[str, tuple[Callable[..., Reducer], int]] = {
    "spardl": (_spardl(1, "auto"), RANKS),
    "spardl, R-SAG": (_spardl(4, "r"), 8),
    "spardl, B-SAG": (_spardl(3, "b"), RANKS),
    **{name: (make, RANKS) for name, make in RIVALS.items() if name != "dense_mpi"},  # whose messages are MPI's
}
# What a rank may answer to a message that says, with all checksums right, something else than was sent.
ANSWERS = (WireError, OutOfStep, DtypeDisagreement, NonFiniteGradient, Deadlock)


class Damage:
    """Damages one of the messages of a run, the n-th.

    ``checksums``: "fits not" leaves the envelope's as it was; "envelope's" makes that one fit again, as if the damage
    had been done before the message was sealed; "none" takes all away, so that only what messages say is left.
    """

    def __init__(self, rng: np.random.Generator, kind: str, nth: int, checksums: str) -> None:
        self._rng, self._kind, self._nth, self._checksums = rng, kind, nth, checksums
        self.seen = 0

    def __call__(self, _sender: int, _receiver: int, message: Bytes) -> None:
        self.seen += 1
        if self.seen - 1 != self._nth or len(message) == FRONT_BYTES:
            return
        change = partial(IN_PLACE[self._kind], self._rng)
        if self._checksums == "fits not":
            message[:] = change(message.copy())
            return
        message[FRONT_BYTES:] = change(message[FRONT_BYTES:].copy())
        if self._checksums == "none":
            take_digests_away(message[FRONT_BYTES:])
        stamp = envelope.stamp_of(message)
        struct.pack_into("<Q", message, 8, envelope._checksum(message, stamp))


def take_digests_away(payload: Bytes) -> None:
    """From a message of frames or a frame alone: from wherever one may stand."""
    if payload[:2].tobytes() == b"SP":
        payload[8:16] = np.frombuffer(UNSIGNED, np.uint8)
        return
    if len(payload) >= 8:
        payload[:8] = np.frombuffer(UNSIGNED, np.uint8)
    data, place = payload.tobytes(), -1
    while (place := data.find(b"SPv2", place + 1)) >= 0:
        payload[place + 8 : place + 16] = np.frombuffer(UNSIGNED[: len(payload) - place - 8], np.uint8)


def reducers(name: str, backends: list[str]) -> list[Reducer]:
    make, ranks = COLLECTIVES[name]
    chosen = [kernels.load(backends[rank % len(backends)]) for rank in range(ranks)]
    return [
        make(SIZE, K, rank=rank, ranks=ranks, dtype="float32", kernels=chosen[rank], codec=Codec(chosen[rank]))
        for rank in range(ranks)
    ]


def reduce(name: str, backends: list[str], grads: list[Any], damage: Any) -> list[SparseVector]:
    made = reducers(name, backends)
    return Loopback([r.reduce(g) for r, g in zip(made, grads, strict=True)], damage=damage).run()


def try_messages(seed: int, count: int) -> Tally:
    rng, tally = np.random.default_rng(seed), Tally()
    names = [*COLLECTIVES]
    for number in range(count):
        name = names[number % len(names)]
        backends = [kernels.BACKENDS[:1], ["numba"], ["numpy"], [*kernels.BACKENDS]][rng.integers(4)]
        grads = list(rng.standard_normal((COLLECTIVES[name][1], SIZE)).astype(np.float32))
        count_all = Damage(rng, "bit flipped", -1, "")
        expected = reduce(name, [*backends], grads, count_all)
        # A dense gradient travels as it is: there is nothing in it that could be checked but the envelope.
        modes = ["fits not"] if name in DENSE else ["fits not", "envelope's", "none"]
        kind, mode = str(rng.choice([*IN_PLACE])), str(rng.choice(modes))
        damage = Damage(rng, kind, int(rng.integers(count_all.seen)), mode)
        verdict, story = judge(partial(reduce, name, [*backends], grads, damage), expected, mode)
        tally.add(kind, mode, name, verdict, f"message {number} of seed {seed}, {backends}: {story}")
    return tally


def judge(run: Callable[[], list[SparseVector]], expected: list[SparseVector], mode: str) -> tuple[str, str]:
    try:
        results = run()
    except (WireError, OutOfStep) as error:
        return REFUSED, str(error)
    except BaseException as error:
        answered = mode == "none" and isinstance(error, ANSWERS)
        return (REFUSED if answered else CRASHED), f"{type(error).__name__}: {error}"
    if [bits_of(result) for result in results] == [bits_of(result) for result in expected]:
        return EQUAL, ""
    if mode == "none" and all(is_sound(result) for result in results):
        return SOUND, ""
    return WRONG, "accepted"


def bits_of(vector: SparseVector) -> tuple[bytes, bytes]:
    return vector.indices.tobytes(), vector.values.tobytes()


def is_sound(vector: SparseVector) -> bool:
    indices = vector.indices
    return bool(np.all(np.diff(indices) > 0) and np.all((indices >= 0) & (indices < SIZE)))
