"""What the cost model says about rows, next to what was measured."""

from spardl.bench.contenders import BASELINE, Contender
from spardl.bench.runner import Options
from spardl.bench.table import Row
from spardl.cost.model import predict
from spardl.cost.profile import Profile


def add_predictions(rows: list[Row], profile: Profile, ranks: int, options: Options) -> None:
    """Where the model knows the algorithm."""
    for row in rows:
        if row["algorithm"] == BASELINE:
            continue  # the model is of what goes through this package's runtime
        seconds = _predict(Contender(row["algorithm"], row["teams"]), row["size"], row["k"], profile, ranks, options)
        if seconds is not None:
            row["predicted_ms"] = 1e3 * seconds
            row["error_percent"] = 100 * (row["predicted_ms"] / row["time_ms"] - 1)


def _predict(contender: Contender, size: int, k: int, profile: Profile, ranks: int, options: Options) -> float | None:
    try:
        return predict(
            profile,
            contender.algorithm,
            ranks=ranks,
            size=size,
            k=k,
            teams=contender.teams,
            wire=options.wire,
            wire_dtype=options.values_of(contender),
        ).seconds
    except (KeyError, ValueError):
        return None
