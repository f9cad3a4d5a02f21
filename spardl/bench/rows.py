"""What is told of one contender: the columns of the table, and more in the JSON."""

import numpy as np

from spardl.bench.ranks import Floats
from spardl.bench.table import Column, Row

COLUMNS = (
    Column("algorithm", "algorithm"),
    Column("teams", "teams", "d"),
    Column("runs", "runs", "d"),
    Column("min ms", "min_ms", ".2f"),
    Column("median", "median_ms", ".2f"),
    Column("max", "max_ms", ".2f"),
    Column("time ms", "time_ms", ".2f"),
    Column("of dense", "ratio", ".3f"),
    Column("rounds", "rounds", "d"),
    Column("messages", "messages", "d"),
    Column("bytes sent", "bytes_sent", ",d"),
    Column("bytes / dense", "bytes_per_dense", ".4f"),
    Column("GB/s", "gb_per_s", ".2f"),
    Column("predicted", "predicted_ms", ".2f"),
    Column("error", "error_percent", "+.0f"),
    Column("law", "law", ".0e"),
    Column("#wrong", "wrong", "d"),
)
LEGEND = (
    "min, median, max: of the ranks' own medians. time: of the slowest rank, the median of the runs; predicted in ms, "
    "error in %.\nrounds, messages, bytes: of the busiest rank. GB/s: dense bytes over time."
)
MEMORY_COLUMNS = (
    Column("algorithm", "algorithm"),
    Column("teams", "teams", "d"),
    Column("NumPy and Python", "arrays_per_dense", ".2f"),
    Column("whole process", "process_per_dense", ".2f"),
)


def timing_row(seconds: Floats, dense_bytes: int) -> Row:
    """``seconds`` by rank and run."""
    own, slowest = np.median(seconds, axis=1), seconds.max(axis=0)
    time = float(np.median(slowest))
    return {
        "runs": len(slowest),
        "min_ms": 1e3 * float(own.min()),
        "median_ms": 1e3 * float(np.median(own)),
        "max_ms": 1e3 * float(own.max()),
        "time_ms": 1e3 * time,
        "gb_per_s": dense_bytes / time / 1e9,
        "seconds": slowest.tolist(),
        "seconds_by_rank": seconds.tolist(),
    }
