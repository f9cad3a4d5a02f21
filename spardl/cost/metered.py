"""Kernels that tell a meter how long they would take, and are otherwise the same: for real gradients in virtual time.

Times are those of a profile's γ, however long the kernels take here. What collectives compute without kernels, such as
the dense ones' additions, takes no time.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from spardl.kernels.api import Corrector, FrameCoder, Kernels
from spardl.runtime.meter import Meter

# Given a kernel's arguments and its result: elements or entries of which kernels of a profile's gamma.
Told: TypeAlias = Callable[[tuple[Any, ...], Any], dict[str, float]]


def metered(kernels: Kernels, gamma: Mapping[str, float]) -> tuple[Kernels, Meter]:
    """The same kernels, and the meter to hand to ``spardl.virtual``."""
    meter = Meter(gamma["call"], gamma["round"])
    return cast(Kernels, _MeteredKernels(kernels, meter, gamma)), meter


class _MeteredKernels:
    """Looks like a backend."""

    def __init__(self, kernels: Kernels, meter: Meter, gamma: Mapping[str, float]) -> None:
        self.name, self.arrays = kernels.name, kernels.arrays
        self.frames = None if kernels.frames is None else _metered_all(kernels.frames, FrameCoder, meter, gamma)
        self.corrector = None if kernels.corrector is None else _metered_all(kernels.corrector, Corrector, meter, gamma)
        vars(self).update(vars(_metered_all(kernels, Kernels, meter, gamma)))


def _metered_all(kernels: Any, protocol: type, meter: Meter, gamma: Mapping[str, float]) -> Any:
    names = [name for name, member in vars(protocol).items() if callable(member) and name[0] != "_"]
    return SimpleNamespace(**{name: _metered(getattr(kernels, name), TOLD[name], meter, gamma) for name in names})


def _metered(kernel: Callable[..., Any], told: Told, meter: Meter, gamma: Mapping[str, float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        result = kernel(*arguments)
        meter.add(sum(amount * gamma[name] for name, amount in told(arguments, result).items()))
        return result

    return call


# -- how much work a call is -------------------------------------------------------------------------------------------


def _accumulated(arguments: tuple[Any, ...], result: Any) -> dict[str, float]:
    blocks, _, _, _, bounds = arguments[:5]
    return {"accumulate": float(sum(bounds[block + 1] - bounds[block] for block in blocks)), "frame": len(blocks)}


def _entries(kernel: str, *places: int) -> Told:
    """As many as the arrays in these places of the arguments have."""
    return lambda arguments, result: {kernel: sum(len(arguments[place]) for place in places)}


def _entries_of_all(kernel: str, *places: int) -> Told:
    """The same for sequences of vectors."""
    return lambda arguments, result: {kernel: sum(len(pair[0]) for place in places for pair in arguments[place])}


def _passed_over(arguments: tuple[Any, ...], result: Any) -> dict[str, float]:
    return {"accumulate": sum(hi - lo for lo, hi in arguments[1])}


def _unpacked(arguments: tuple[Any, ...], result: Any) -> dict[str, float]:
    return {"unpack": sum(map(len, result))}


def _written(arguments: tuple[Any, ...], result: Any) -> dict[str, float]:
    return {"pack": sum(len(indices) for indices, _ in arguments[0]), "frame": len(arguments[0])}


def _read(arguments: tuple[Any, ...], result: Any) -> dict[str, float]:
    return {"unpack": sum(len(indices) for *_, indices, _ in result), "frame": len(result)}


TOLD: dict[str, Told] = {
    "accumulate": _accumulated,
    "accumulate_corrected": _accumulated,
    "topk_dense": _entries("accumulate", 0),  # a pass over all, and little more
    "topk_dense_many": _passed_over,
    "select": _entries("select", 0, 2),
    "select_many": _entries_of_all("select", 0, 1),
    "split": _entries("select", 0),
    "add": _entries("add", 0, 2),
    "add_many": _entries_of_all("add", 0),
    "overlay": _entries("overlay", 3),
    "overlay_many": _entries_of_all("overlay", 2),
    "scatter_add": _entries("settle", 1),
    "overwrite_where": _entries("settle", 2),
    "overwrite_where_many": _entries_of_all("settle", 2),
    "add_where": _entries("settle", 2),
    "pack": _entries("pack", 0),
    "pack_many": _entries_of_all("pack", 0),
    "unpack": lambda arguments, result: {"unpack": len(result)},
    "unpack_many": _unpacked,
    "write_frame": lambda arguments, result: {"pack": len(arguments[0][0]), "frame": 1},
    "write_message": _written,
    "read_frames": _read,
    "read_message": _read,
    "corrections": _entries_of_all("correct", 1, 2),
}
