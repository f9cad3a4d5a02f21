"""Reading back what `spardl bench` wrote, from as many runs as there are."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple


class Setting(NamedTuple):
    """Where a time was measured."""

    label: str
    size: int
    density: float
    ranks: int


class Measurement(NamedTuple):
    setting: Setting
    algorithm: str
    teams: int
    ms: float
    predicted_ms: float | None


def load(paths: Iterable[Path]) -> list[Measurement]:
    """What was measured several times becomes one, with the medians."""
    same: dict[tuple[Setting, str, int], list[Measurement]] = {}
    for path in paths:
        for found in _read(path):
            same.setdefault(found[:3], []).append(found)
    return [_merge(several) for several in same.values()]


def _read(path: Path) -> list[Measurement]:
    try:
        told = json.loads(path.read_text())
        return [
            Measurement(
                Setting(told["label"], row["size"], row["density"], told["ranks"]),
                row["algorithm"],
                row.get("teams", 1),
                row["time_ms"],
                row.get("predicted_ms"),
            )
            for row in told["rows"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} was not written by `spardl bench`: {error!r}") from error


def _merge(several: Sequence[Measurement]) -> Measurement:
    predicted = [one.predicted_ms for one in several if one.predicted_ms is not None]
    return several[0]._replace(
        ms=median(one.ms for one in several), predicted_ms=median(predicted) if predicted else None
    )
