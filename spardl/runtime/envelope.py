"""What stands in front of every message: which call it belongs to, and a checksum of all of it.

A message that was damaged on its way is refused before anything in it is believed. A message in a GPU's memory carries
no checksum but the word "unsigned": to compute one, the message would have to be copied to the host.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from spardl.effects import FRONT_BYTES, Draft, front_of, parts_of
from spardl.errors import OutOfStep, WireError
from spardl.kernels.api import Messages

_ENVELOPE = struct.Struct("<2sHIQ")  # magic, generation, number of the call, checksum
assert _ENVELOPE.size == FRONT_BYTES
_MAGIC = b"SP"
_NO_CHECKSUM = int.from_bytes(b"unsigned", "little")  # not 0: a stretch of lost bytes must not pass for it


class Stamp(NamedTuple):
    """``generation`` tells apart objects that have used the same tags one after the other."""

    generation: int
    call: int


def sealed(payload: Any, stamp: Stamp, messages: Messages) -> Any:
    """The message of ``payload``, in an envelope."""
    if isinstance(payload, Draft):
        message = payload.paper
    else:
        front = np.frombuffer(_ENVELOPE.pack(_MAGIC, *stamp, _NO_CHECKSUM), np.uint8)
        message = messages.seal([front, *parts_of(payload)])
    if isinstance(message, np.ndarray):
        _ENVELOPE.pack_into(message.data, 0, _MAGIC, *stamp, _checksum(message, stamp))
    return message


def stamp_of(message: Any) -> Stamp:
    """What the envelope says, unchecked."""
    return Stamp(*_read(message)[:2])


def checked_stamp(message: Any, sender: int) -> Stamp:
    """What the envelope says; raises if the message is not what rank ``sender`` has sent."""
    generation, call, checksum = _read(message)
    stamp = Stamp(generation, call)
    if checksum != _NO_CHECKSUM and isinstance(message, np.ndarray) and checksum != _checksum(message, stamp):
        raise WireError(
            f"a message of {len(message)} bytes from rank {sender} was damaged on its way: its checksum does not fit. "
            "Look for faulty memory or network hardware on the way; nothing of this message was used."
        )
    return stamp


def _read(message: Any) -> tuple[int, int, int]:
    magic, *stamp = _ENVELOPE.unpack_from(front_of(message, FRONT_BYTES)) if len(message) >= FRONT_BYTES else (b"", 0)
    if magic != _MAGIC:
        raise OutOfStep("a message arrived that spardl did not send: is something else using its tags?")
    return stamp[0], stamp[1], stamp[2]


def _checksum(message: Any, stamp: Stamp) -> int:
    return xxh3_64_intdigest(message.data[FRONT_BYTES:], stamp.generation << 32 | stamp.call)
