"""What the benchmarks' command lines share. Not run by itself."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spardl import kernels
from spardl.bench import record
from spardl.bench.sizes import SIZES
from spardl.bench.table import Row


def parser(description: str | None) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    flags = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flags.add_argument(
        "--size", type=int, default=SIZES["vgg16"], help="elements of the gradient (default: %(default)s, VGG-16)"
    )
    flags.add_argument("--density", type=float, default=0.01, help="share of them to keep (default: %(default)s)")
    flags.add_argument("--repeats", type=int, default=15, help="timed runs of everything (default: %(default)s)")
    flags.add_argument("--warmup", type=int, default=5, help="runs before those, not timed (default: %(default)s)")
    flags.add_argument("--backend", default="auto", choices=("auto", *kernels.BACKENDS), help="kernels (default: auto)")
    flags.add_argument("--seed", type=int, default=0, help="of the random gradients (default: %(default)s)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write what was measured to this file")
    return flags


def write_json(args: argparse.Namespace, facts: Row, rows: Sequence[Row], launcher: str = "", **more: Any) -> None:
    """Everything measured, to ``--json``, if given. ``launcher`` is what stands before the command, e.g. mpiexec."""
    if args.json is not None:
        command = f"{launcher} python {shlex.join(sys.argv)}".strip()
        parameters = {name: value for name, value in vars(args).items() if name != "json"} | more
        try:
            record.write(args.json, command, facts, parameters, rows)
        except OSError as error:  # what is yet to be measured may take hours
            print(f"{args.json} cannot be written: {error}", file=sys.stderr)
