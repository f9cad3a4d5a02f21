"""Everything measured as JSON, with the facts without which a time means little."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spardl.bench.table import Row


def machine(backend: str) -> Row:
    """Of the process that asks; ``backend`` is the name of its kernels."""
    facts: Row = {
        "cpu": platform.machine(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "backend": backend,
    }
    if backend == "native":
        from spardl.kernels import _native  # not there at all if spardl was installed without a compiler

        facts["simd"] = _native.simd()
    return facts


def describe(facts: Row) -> str:
    """The facts in one line, to put under a table."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def write(path: Path, command: str, facts: Row, parameters: Row, rows: Sequence[Row], **more: Any) -> None:
    """``command`` is what someone would type to measure the same."""
    record = {"command": command, "machine": facts, "parameters": parameters, **more, "rows": list(rows)}
    path.write_text(json.dumps(record, indent=2, default=str) + "\n")
