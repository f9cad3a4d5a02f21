"""Times and rates as people write them: 50us, 1.5ms, 1gbit."""

import re

PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
NUMBER = r"\d+(?:\.\d+)?"


def split_time(time: str) -> tuple[float, str]:
    """The number and its unit, which may be missing."""
    match = re.fullmatch(rf"({NUMBER})({'|'.join(PER_SECOND)}|)", time)
    if match is None:
        raise ValueError(f"expected times >= 0 in {', '.join(PER_SECOND)}, got {time!r}")
    return float(match[1]), match[2]


def parse_time(time: str) -> float:
    """In seconds."""
    number, unit = split_time(time)
    if not unit:
        raise ValueError(f"expected a unit after the time ({', '.join(PER_SECOND)}), got {time!r}")
    return number / PER_SECOND[unit]


def parse_factor(factor: str) -> float:
    """How many times as long, as in 2x."""
    match = re.fullmatch(rf"({NUMBER})x", factor)
    if match is None or float(match[1]) < 1:
        raise ValueError(f"expected a factor of at least 1, as in 2x, got {factor}")
    return float(match[1])


def parse_rate(rate: str) -> float:
    """In bits per second."""
    match = re.fullmatch(rf"({NUMBER})({'|'.join(_BITS)})", rate)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"expected a rate > 0 in {', '.join(_BITS)}, as in 1gbit, got {rate!r}")
    return float(match[1]) * _BITS[match[2]]
