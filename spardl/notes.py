"""What processes of different ranks tell each other, as bytes: small frozen dataclasses, a few dozen bytes each.

A note's fields are numbers, texts, or sets of ranks as increasing tuples. Bytes from elsewhere are checked before they
become a note.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from itertools import groupby, pairwise
from typing import Any, get_origin, get_type_hints

from spardl.errors import WireError

_MOST_RANKS = 1 << 22


class Note:
    """Derive a note from this, and it can be sent. No two have the same name."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        known = _kinds.setdefault(cls.__name__, cls)
        if known.__module__ != cls.__module__:
            raise TypeError(f"there are two notes with the name {cls.__name__}, in {known.__module__} and here")
        _kinds[cls.__name__] = cls  # dataclass(slots=True) makes it a second time


_kinds: dict[str, type[Note]] = {}


def to_bytes(process: str, note: Note) -> bytes:
    """For the process of that name."""
    values = [_to_json(getattr(note, name)) for name, _ in _fields(type(note).__name__)]
    return json.dumps([process, type(note).__name__, *values], separators=(",", ":")).encode()


def from_bytes(text: bytes) -> tuple[str, Note]:
    """What ``to_bytes`` was given. Raises WireError for other bytes."""
    try:
        process, name, *values = json.loads(text)
        kind, expected = _kinds[name], _fields(name)
        if type(process) is not str or len(values) != len(expected):
            raise ValueError
        return process, kind(*(_from_json(value, of) for value, (_, of) in zip(values, expected, strict=True)))
    except (ValueError, TypeError, LookupError, RecursionError):
        raise WireError(
            f"{len(text)} bytes arrived that are no note of spardl's: do all ranks run the same spardl?"
        ) from None


@cache
def _fields(name: str) -> list[tuple[str, Any]]:
    """Names and types, of the note of that name."""
    types = get_type_hints(_kinds[name])
    return [(field.name, types[field.name]) for field in fields(_kinds[name])]  # type: ignore[arg-type]


def _to_json(value: Any) -> Any:
    return write_ranks(value) if isinstance(value, tuple) else value


def _from_json(value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return read_ranks(value)
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError


# -- sets of ranks -----------------------------------------------------------------------------------------------------


def write_ranks(ranks: Sequence[int]) -> str:
    """As ranges, or as bits where that is shorter: of 4,096 ranks at most 690 characters."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])]
    ranges = ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    if len(ranges) * 6 <= (ranks[-1] if ranks else 0):
        return ranges
    bits = sum(1 << rank for rank in ranks)
    coded = "=" + base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
    return min(ranges, coded, key=len)


def read_ranks(text: Any) -> tuple[int, ...]:
    """What ``write_ranks`` was given. Raises ValueError or TypeError for what is no text of its."""
    if type(text) is not str:
        raise TypeError
    if text.startswith("="):
        ranks = _read_bits(base64.b64decode(text[1:], validate=True))
    else:
        ranks = [rank for part in text.split(",") if text for rank in _read_run(part)]
    if any(a >= b for a, b in pairwise(ranks)):
        raise ValueError
    return tuple(ranks)


def _read_bits(coded: bytes) -> list[int]:
    if len(coded) * 8 > _MOST_RANKS:
        raise ValueError
    return [8 * place + bit for place, byte in enumerate(coded) if byte for bit in range(8) if byte >> bit & 1]


def _read_run(part: str) -> range:
    first, dash, last = part.partition("-")
    run = range(_read_rank(first), _read_rank(last if dash else first) + 1)
    if not run:
        raise ValueError
    return run


def _read_rank(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 8 or int(digits) >= _MOST_RANKS:
        raise ValueError
    return int(digits)
