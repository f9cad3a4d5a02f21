"""Whether the bytes of a frame or of a message (``spardl.wire``) are those that were written: XXH3 in 64 bits.

``UNSIGNED`` in place of a digest says that there is none.
"""

import struct
from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from spardl.effects import Bytes
from spardl.errors import WireError
from spardl.header import HEADER, MAGIC, UNSIGNED

DIGEST = struct.Struct("<Q")  # what a message begins with
_CODES = struct.Struct("<QQ")  # what a frame begins with: eight bytes of its header, and its digest


def sign_frame(frame: Bytes) -> Bytes:
    """Fills in the digest of a frame; one in a GPU's memory stays without."""
    if isinstance(frame, np.ndarray):
        data = frame.data
        codes, _ = _CODES.unpack_from(data)
        DIGEST.pack_into(data, DIGEST.size, _of_frame(data, codes))
    return frame


def require_whole_frame(frame: Bytes) -> None:
    """Leaves to others what is no frame at all: they know better what is wrong."""
    if not isinstance(frame, np.ndarray) or len(frame) < HEADER.size:
        return
    data = frame.data
    codes, digest = _CODES.unpack_from(data)
    if digest != UNSIGNED and data[: len(MAGIC)] == MAGIC and digest != _of_frame(data, codes):
        raise _damaged("frame", frame)


def _of_frame(data: memoryview, codes: int) -> int:
    return xxh3_64_intdigest(data[_CODES.size :], codes)


def sign_message(message: Bytes, begin: int) -> None:
    """Fills in the digest of a message that begins there and is the rest of the array."""
    data = message.data
    DIGEST.pack_into(data, begin, xxh3_64_intdigest(data[begin + DIGEST.size :]))


def digest_of(table: bytes, frames: Sequence[Bytes]) -> int:
    """Of the message with that table, of those frames."""
    if not all(isinstance(frame, np.ndarray) for frame in frames):
        return UNSIGNED
    hasher = xxh3_64(table)
    for frame in frames:
        hasher.update(frame.data)
    return hasher.intdigest()


def require_whole_message(message: Bytes) -> None:
    if not isinstance(message, np.ndarray) or len(message) < DIGEST.size:
        return
    data = message.data
    (digest,) = DIGEST.unpack_from(data)
    if digest != UNSIGNED and digest != xxh3_64_intdigest(data[DIGEST.size :]):
        raise _damaged("message", message)


def _damaged(what: str, found: Bytes) -> WireError:
    return WireError(
        f"a {what} of {len(found)} bytes was damaged: its checksum does not fit. Look for faulty memory or network "
        "hardware on the way, and make sure that all ranks run the same spardl; nothing of it was used."
    )
