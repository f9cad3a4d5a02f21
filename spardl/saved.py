"""Checks of saved states, which may be damaged or of something else: whatever is wrong with one is a ValueError."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_MOST_SHOWN = 80  # characters of a value


def unfit(what: str, expected: str, got: Any) -> ValueError:
    text = repr(got)
    shown = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
    return ValueError(f"load_state_dict: expected {what} {expected}, got {shown}")


def mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise unfit(what, "to be a dict", value)
    return value


def part(state: Any, name: str) -> Any:
    """``state[name]``."""
    if name not in mapping(state, "the state"):
        raise ValueError(f"load_state_dict: the state has no {name!r}; is it complete, and spardl's?")
    return state[name]


def nothing_but(names: Iterable[str], state: Mapping[Any, Any], what: str) -> None:
    """Raises if the state has other parts than these."""
    unknown = state.keys() - set(names)
    if unknown:
        raise ValueError(f"load_state_dict: {what} has parts that spardl does not know: {sorted(map(str, unknown))}")


def integer(value: Any, what: str, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise unfit(what, f"to be an integer {limits}", value)
    return value


def sequence(value: Any, what: str, length: int | None = None) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
        raise unfit(what, "to be a list" if length is None else f"to be a list of {length}", value)
    return value


def array(value: Any, what: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Of that shape and dtype, and with finite numbers only."""
    if not isinstance(value, np.ndarray):
        raise unfit(what, "to be an array", value)
    if value.shape != shape:
        raise unfit(what, f"of shape {shape}", value.shape)
    if value.dtype != np.dtype(dtype):
        raise unfit(what, f"of dtype {np.dtype(dtype)}", value.dtype)
    return finite(value, what)


def finite(values: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise ValueError(f"load_state_dict: {what} has {bad} values that are not finite, of {values.size}")
    return values
