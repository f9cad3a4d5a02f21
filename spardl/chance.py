"""Random numbers that are a function of their names: no state, so all ranks draw the same without talking."""

import hashlib


def fraction(purpose: str, *key: int) -> float:
    """A number from 0 up to but not including 1, independent for each purpose and key."""
    return (_bits(purpose, key) >> 11) * 2.0**-53


def below(limit: int, purpose: str, *key: int) -> int:
    """A whole number from 0 to ``limit`` - 1, likewise."""
    return (_bits(purpose, key) * limit) >> 64


def _bits(purpose: str, key: tuple[int, ...]) -> int:
    """64 of them. A hash, since generators of the standard library and of NumPy may change with their versions."""
    name = " ".join([purpose, *(f"{number:d}" for number in key)])  # :d writes NumPy's integers like Python's
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
