"""What benchmarks/suite.py has measured, beside what virtual time says with the profile measured there. Not run by
itself.

Sparse algorithms get real gradients, drawn as `spardl bench` draws them, since what Ok-Topk and B-SAG send depends on
them; their kernels tell how long they would take. Dense ones send sizes only.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from spardl import kernels, schedule, virtual
from spardl.bench.runner import make_gradients
from spardl.bench.table import Column, Row
from spardl.collectives.reducer import Reducer
from spardl.collectives.rivals import DENSE, RIVALS
from spardl.collectives.spardl import SparDL
from spardl.cost.metered import metered
from spardl.cost.network import network_of
from spardl.cost.profile import Profile
from spardl.cost.sized import sized
from spardl.cost.traffic import WALKERS, Setting
from spardl.wire import Codec

SUITE_COLUMNS = (
    Column("network", "network"),
    Column("P", "ranks", "d"),
    Column("n", "size", ",d"),
    Column("density", "density", "g"),
    Column("algorithm", "algorithm"),
    Column("teams", "teams", "d"),
    Column("measured ms", "measured_ms", ".2f"),
    Column("virtual ms", "virtual_ms", ".2f"),
    Column("virtual / measured", "ratio", ".2f"),
    Column("error %", "error_percent", "+.0f"),
    Column("cost model's", "model_percent", "+.0f"),
)
_WARMUP, _REPEATS = 3, 3


def compare(folder: Path) -> Iterator[Row]:
    """Every time in a folder of results; each network's own folder has its profile."""
    results = sorted(path for path in folder.glob("*/*.json") if path.name != "profile.json")
    if not results:
        raise SystemExit(f"there are no results of benchmarks/suite.py in {folder}")
    for path in results:
        profile, told = Profile.load(path.parent / "profile.json"), json.loads(path.read_text())
        for row in told["rows"]:
            if row["algorithm"] in WALKERS:
                yield _compared(profile, told, row)


def _compared(profile: Profile, told: Row, row: Row) -> Row:
    setting = Setting(told["ranks"], row["size"], row["k"], row.get("teams") or 1)
    predict = _with_sizes if row["algorithm"] in DENSE else _with_gradients
    seconds = predict(profile, row["algorithm"], setting)
    ratio = 1e3 * seconds / row["time_ms"]
    return {
        **{"network": told["label"], "ranks": told["ranks"], "size": row["size"], "density": row["density"]},
        **{"algorithm": row["algorithm"], "teams": setting.teams, "measured_ms": row["time_ms"]},
        **{"virtual_ms": 1e3 * seconds, "ratio": ratio, "error_percent": 100 * (ratio - 1)},
        "model_percent": row.get("error_percent"),
    }


def _with_sizes(profile: Profile, algorithm: str, s: Setting) -> float:
    return virtual(sized(algorithm, s, profile.gamma), network=network_of(profile)).seconds


def _with_gradients(profile: Profile, algorithm: str, s: Setting) -> float:
    telling, meter = metered(kernels.load(), profile.gamma)
    common = {"dtype": "float32", "kernels": telling, "codec": Codec(telling)}
    reducers = [_reducer(algorithm, s, rank, common) for rank in range(s.ranks)]
    gradients = [make_gradients(rank, s.size, seed=0) for rank in range(s.ranks)]
    seconds = []
    for number in range(_WARMUP + _REPEATS):
        parts = [r.reduce(own[number % len(own)]) for r, own in zip(reducers, gradients, strict=True)]
        seconds.append(virtual(parts, network=network_of(profile), meter=meter).seconds)
    return median(seconds[_WARMUP:])


def _reducer(algorithm: str, s: Setting, rank: int, common: dict[str, Any]) -> Reducer:
    if algorithm == "spardl":
        return SparDL(s.size, s.k, rank=rank, layout=schedule.Teams(s.ranks, s.teams), **common)
    return RIVALS[algorithm](s.size, s.k, rank=rank, ranks=s.ranks, **common)
