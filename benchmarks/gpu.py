"""The kernels on a GPU: what memory traffic predicts for them, what they take, and what they compile to.

    python benchmarks/gpu.py                    # on a GPU: times, and the share of the memory's bandwidth reached
    python benchmarks/gpu.py --model            # anywhere: bytes moved, and what that takes at --bandwidth
    python benchmarks/gpu.py --compile-report   # anywhere: registers and memory per kernel and architecture

Times include launching, and waiting for the stream. The yardstick is a copy on the device in the same run. docs/gpu.md
derives the bytes. Exits with 1 if a result is not the numpy backend's, bit for bit. The last of the three needs
nvidia-cuda-nvcc-cu12 and nvidia-cuda-nvrtc-cu12, the first spardl[cuda12] or spardl[cuda13].
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import arguments
import numpy as np

from spardl import kernels
from spardl.bench import record, timing
from spardl.bench.table import Column, Row, print_table

SECTOR = 32  # bytes that a GPU reads at least, wherever one value is wanted
PASSES = 3  # of a radix select over float32


class Sizes(NamedTuple):
    """Of one block: elements, entries to keep, candidates, and entries received into it."""

    n: int
    k: int
    candidates: int
    received: int


def bytes_moved(sizes: Sizes) -> dict[str, float]:
    """Float32 and int32; what is bound to be read or written per kernel. See docs/gpu.md."""
    n, k, candidates, received = sizes
    merged = candidates + received
    return {
        "copy": 8 * n,
        "accumulate": 12 * n + n / 4 + candidates * (8 + SECTOR),
        "topk_dense": 4 * n * (PASSES + 1) + n / 2 + k * (8 + SECTOR),
        "overlay": received * (2 * 8 + 1 + SECTOR + 8),
        "select": merged * (2 * 8 + 1 + 8) + merged * (4 * (PASSES + 1) + 0.5) + k * 16,
        "add": 2 * k * (2 * 8 + 1 + 8),
        "pack": k * (4 + 4 + 8 + 8 + 8 + 1),
        "unpack": k * (1 + 1 + 4 * 8 + 4),
        "overwrite_where": k * (8 + SECTOR) * 2,
    }


def sizes_of(args: argparse.Namespace) -> Sizes:
    k = max(1, round(args.density * args.size))
    return Sizes(args.size, k, candidates=round(1.3 * k), received=k)


def operations(args: argparse.Namespace) -> dict[str, list[Any]]:
    """The arguments of every kernel that is timed."""
    rng = np.random.default_rng(args.seed)
    n, k, candidates, received = sizes_of(args)
    grad, residual = rng.standard_normal((2, n)).astype(np.float32)
    magnitudes = np.sort(np.abs(grad + residual))
    floor = magnitudes[-min(candidates, n)]
    room = np.array([0, min(n, 4 * k + 1024)])
    buffers = [np.zeros(room[1], np.int32), np.zeros(room[1], np.float32)]
    counts = [min(count, n) for count in (candidates, received, k)]
    some = [np.sort(rng.choice(n, count, replace=False)).astype(np.int32) for count in counts]
    own, theirs, kept = ((indices, rng.standard_normal(len(indices)).astype(np.float32)) for indices in some)
    bits = max(0, int(np.log2(0.69 * n / k)))
    low, high = kernels.load("numpy").pack(kept[0], 0, bits)
    whole, floors = np.array([0, n]), np.array([floor], np.float32)
    return {
        "accumulate": [[0], grad, residual, np.zeros_like(grad), whole, floors, room, *buffers],
        "topk_dense": [grad, k, 0, np.int32],
        "overlay": [*kept, grad, *theirs],
        "select": [*own, *theirs, k, 1e-3],
        "add": [*kept, *theirs],
        "pack": [kept[0], 0, bits],
        "unpack": [low, high, len(kept[0]), 0, bits, np.int32],
        "overwrite_where": [grad.copy(), theirs[0], *kept],
    }


HOSTS_OWN = {"accumulate": (4, 5, 6)}  # bounds, floors and starts


def measure(args: argparse.Namespace) -> tuple[list[Row], bool]:
    """A row per kernel, and whether all results were right."""
    gpu: Any = kernels.open_cuda(0)
    on, oracle = gpu.arrays, kernels.load("numpy")
    tiny = on.zeros(1, np.int32)

    def timed(call: Callable[[], object]) -> list[float]:
        def complete() -> None:
            call()
            on.to_host(tiny)  # waits for the stream

        return timing.timed(complete, args.repeats, args.warmup)

    traffic = bytes_moved(sizes_of(args))
    source = on.zeros(args.size, np.float32)
    rows, right = [row_of("copy", traffic, args.bandwidth, timed(lambda: on.concatenate([source])))], True
    for name, given in operations(args).items():
        stay = HOSTS_OWN.get(name, ())
        moved = [
            on.from_host(value) if isinstance(value, np.ndarray) and at not in stay else value
            for at, value in enumerate(given)
        ]
        expected, got = getattr(oracle, name)(*given), getattr(gpu, name)(*moved)
        pairs = zip(leaves([got, moved]), leaves([expected, given]), strict=True)
        same = all(alike(on, one, other) for one, other in pairs)
        right = right and same
        kernel = getattr(gpu, name)
        row = row_of(name, traffic, args.bandwidth, timed(lambda kernel=kernel, moved=moved: kernel(*moved)))
        rows.append(row | {"right": "yes" if same else "WRONG"})
    for row in rows:
        row["of_copy"] = row["gb_per_s"] / rows[0]["gb_per_s"]
    return rows, right


def leaves(tree: Any) -> list[Any]:
    return [leaf for branch in tree for leaf in leaves(branch)] if isinstance(tree, (tuple, list)) else [tree]


def alike(on: Any, got: Any, expected: Any) -> bool:
    if not isinstance(expected, np.ndarray):
        return bool(got == expected)
    if not isinstance(got, np.ndarray):
        (got,) = on.to_host(got)
    return bool(got.tobytes() == expected.tobytes())


def row_of(name: str, traffic: dict[str, float], bandwidth: float, seconds: list[float] | None = None) -> Row:
    row: Row = {"kernel": name, "mb": traffic[name] / 1e6, "model_ms": traffic[name] / bandwidth / 1e6}
    if seconds is not None:
        row |= timing.times(seconds) | {"gb_per_s": traffic[name] / float(np.median(seconds)) / 1e9}
    return row


COLUMNS = [
    Column("kernel", "kernel"),
    Column("MB moved", "mb", ".2f"),
    Column("ms at that bandwidth", "model_ms", ".4f"),
    Column("min ms", "min_ms", ".4f"),
    Column("median ms", "median_ms", ".4f"),
    Column("GB/s", "gb_per_s", ".0f"),
    Column("of a copy's", "of_copy", ".2f"),
    Column("right", "right"),
]


def print_compile_report() -> None:
    from spardl.kernels.cuda import compiling

    rows = [
        usage._asdict() | {"blocks": compiling.blocks_per_processor(usage)}
        for usage in sorted(compiling.compile_all(), key=lambda usage: (usage.kernel, usage.values))
    ]
    columns = [Column("kernel", "kernel"), Column("values", "values"), Column("architecture", "architecture")]
    columns += [Column("registers", "registers", "d"), Column("shared bytes", "shared", "d")]
    columns += [Column("local bytes", "local", "d"), Column("blocks per processor", "blocks", "d")]
    print_table("What the kernels compile to", columns, rows)


def main() -> int:
    flags = arguments.parser(__doc__)
    flags.add_argument("--bandwidth", type=float, default=1500, help="of the GPU's memory, GB/s (default: %(default)s)")
    flags.add_argument("--model", action="store_true", help="only what memory traffic predicts; needs no GPU")
    flags.add_argument("--compile-report", action="store_true", help="only what kernels compile to; needs no GPU")
    args = flags.parse_args()
    if args.compile_report:
        print_compile_report()
        return 0
    title = f"n = {args.size:,}, density {args.density:g}, float32, {args.bandwidth:g} GB/s"
    if args.model:
        traffic = bytes_moved(sizes_of(args))
        print_table(title, COLUMNS, [row_of(name, traffic, args.bandwidth) for name in traffic])
        return 0
    try:
        rows, right = measure(args)
    except ValueError as error:
        print(f"{error}\n--model and --compile-report need no GPU.", file=sys.stderr)
        return 2
    facts = record.machine(kernels.CUDA)
    print_table(title, COLUMNS, rows, record.describe(facts))
    arguments.write_json(args, facts, rows)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
