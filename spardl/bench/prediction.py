"""What the cost model says about rows, next to what was measured."""

from spardl.bench.contenders import BASELINE, Contender
from spardl.bench.runner import Options
from spardl.bench.table import Row
from spardl.cost.model import predict
from spardl.cost.profile import Profile


def add_predictions(rows: list[Row], profile: Profile, ranks: int, options: Options) -> None:
    """To all but the baseline: the model is of what goes through this package's runtime."""
    for row in rows:
        if row["algorithm"] == BASELINE:
            continue
        contender = Contender(row["algorithm"], row["teams"])
        predicted = predict(
            profile,
            contender.algorithm,
            ranks=ranks,
            size=row["size"],
            k=row["k"],
            teams=contender.teams,
            wire=options.wire,
            wire_dtype=options.values_of(contender),
        )
        row["predicted_ms"] = 1e3 * predicted.seconds
        row["error_percent"] = 100 * (row["predicted_ms"] / row["time_ms"] - 1)
