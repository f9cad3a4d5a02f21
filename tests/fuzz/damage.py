"""Ways in which bytes are damaged. Each takes a random generator and bytes, and returns other bytes, or the same."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
NUMBERS = (
    -(2**63),
    -(2**31),
    -5000,
    -1,
    0,
    1,
    2,
    57,
    64,
    2**16,
    2**31 - 1,
    2**31,
    2**33,
    2**57,
    2**61,
    2**62,
    2**63 - 1,
)


def flip_bit(rng: np.random.Generator, data: Bytes) -> Bytes:
    place = rng.integers(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    return data


def change_byte(rng: np.random.Generator, data: Bytes) -> Bytes:
    data[rng.integers(len(data))] = rng.integers(256)
    return data


def change_many(rng: np.random.Generator, data: Bytes) -> Bytes:
    places = rng.integers(len(data), size=rng.integers(2, 20))
    data[places] = rng.integers(256, size=len(places))
    return data


def lose_stretch(rng: np.random.Generator, data: Bytes) -> Bytes:
    """What was never written, or overwritten with nothing."""
    begin = rng.integers(len(data))
    data[begin : begin + rng.integers(1, 80)] = 0
    return data


def repeat_stretch(rng: np.random.Generator, data: Bytes) -> Bytes:
    """A part arrives again in the place of another."""
    length = rng.integers(1, 1 + min(64, len(data)))
    source, target = rng.integers(len(data) - length + 1, size=2)
    data[target : target + length] = data[source : source + length].copy()
    return data


def swap_words(rng: np.random.Generator, data: Bytes) -> Bytes:
    words = data[: len(data) // 8 * 8].view(np.int64)
    if len(words) > 1:
        one, other = rng.integers(len(words), size=2)
        words[[one, other]] = words[[other, one]]
    return data


def change_number(rng: np.random.Generator, data: Bytes) -> Bytes:
    """One of the first, where lengths and bases stand, becomes one that is hard to bear, or a little different."""
    words = data[: min(len(data), 128) // 8 * 8].view(np.int64)
    if len(words):
        place = rng.integers(len(words))
        near = (int(words[place]) + int(rng.integers(-70, 70)) + 2**63) % 2**64 - 2**63
        words[place] = near if rng.integers(2) else rng.choice(NUMBERS)
    return data


def cut_off(rng: np.random.Generator, data: Bytes) -> Bytes:
    return data[: rng.integers(len(data))]


def append(rng: np.random.Generator, data: Bytes) -> Bytes:
    more = rng.integers(256, size=rng.choice([1, 7, 8, 64])).astype(np.uint8)
    return np.concatenate([data, more])


# What keeps the length; a message's is known to MPI.
IN_PLACE: dict[str, Callable[[np.random.Generator, Bytes], Bytes]] = {
    "bit flipped": flip_bit,
    "byte changed": change_byte,
    "bytes changed": change_many,
    "stretch lost": lose_stretch,
    "stretch repeated": repeat_stretch,
    "words swapped": swap_words,
    "number changed": change_number,
}
KINDS = IN_PLACE | {"cut off": cut_off, "made longer": append}
