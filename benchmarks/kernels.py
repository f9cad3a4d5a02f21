"""How fast the kernels are, next to what the machine and other libraries do in the same run; one process, one thread.

    python benchmarks/kernels.py
    python benchmarks/kernels.py --backend numba --size 1000000 --json kernels.json

Needs scipy and torch, to compare with. Every row names its yardstick; the two take turns, and the ratio is that of the
medians; where that of the minima is much different, the machine was busy with something else. GB/s counts the bytes
that the operation cannot avoid to read or write. Targets are set for the native backend and the default size. Exits
with 1 if a result is wrong: if the last repeat's differs from the numpy backend's, scipy's or torch's.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import arguments
import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from targets import Target, at_least, at_most

from spardl import kernels
from spardl.bench import record, timing
from spardl.bench.progress import shown
from spardl.bench.table import Column, Row, print_table
from spardl.bench.timing import Candidate
from spardl.effects import Draft
from spardl.kernels import Kernels, memory
from spardl.kernels.api import Pair, Values
from spardl.runtime.envelope import Stamp, checked_stamp, sealed
from spardl.schedule import Blocks, cut_blocks
from spardl.selection import Selector
from spardl.wire import Codec

ORACLE = kernels.load("numpy")
BLOCKS = 6
LINK = 1e9 / 8  # bytes per second of a 1 Gbit/s network
STAMP = Stamp(0, 1)
SHORT = 10  # times as many repeats of what takes well below a millisecond


def judged(what: str, seconds: Sequence[float], against: str, yardstick: Sequence[float], target: Target) -> Row:
    """A row whose ratio says how much slower than the yardstick it is, or how much faster where more is better."""
    ratios = timing.ratios(seconds, yardstick) if target.at_most else timing.ratios(yardstick, seconds)
    return {
        "what": what,
        **timing.times(seconds),
        "yardstick": against,
        "yardstick_ms": 1e3 * float(np.median(yardstick)),
        **ratios,
        "target": str(target),
        "verdict": target.verdict(ratios["ratio"]),
    }


def rate(seconds: Sequence[float], touched: int) -> float:
    return touched / float(np.median(seconds)) / 1e9


# -- one pass over the gradient ----------------------------------------------------------------------------------------


class Loop:
    """Accumulate and select, again and again; what was selected leaves the residual, as if there were one rank only."""

    def __init__(self, chosen: Kernels, blocks: Blocks, rng: np.random.Generator, *, cold: bool) -> None:
        self._blocks, self._rng, self._cold = blocks, rng, cold
        size = int(blocks.bounds[-1])
        self._selector = Selector(chosen, blocks, np.float32, rank=0)
        self._unknown = self._selector.thresholds  # those of a selector that has not seen anything yet
        self._grad, self._residual, self._acc = (np.full(size, 0, np.float32) for _ in range(3))
        self._selected: list[Pair] = []

    def prepare(self) -> None:
        """A fresh gradient, and the residual that the last step left."""
        if self._selected:
            for indices, _ in self._selected:
                self._acc[indices] = 0
            self._residual, self._acc = self._acc, self._residual
        self._rng.standard_normal(dtype=np.float32, out=self._grad)
        if self._cold:
            self._selector.thresholds = self._unknown

    def step(self) -> None:
        """What is timed."""
        self._selector.accumulate(self._grad, self._residual, self._acc)
        self._selected = self._selector.select(range(len(self._blocks.budgets)))
        self._selector.thresholds = self._selector.learnt()

    def wrong(self) -> int:
        """How many elements of the last step differ from the oracle's."""
        total = np.add(self._grad, self._residual)
        wrong = int(np.count_nonzero(total != self._acc))
        for j, found in enumerate(self._selected):
            lo, hi = (int(bound) for bound in self._blocks.bounds[j : j + 2])
            wrong += different(found, ORACLE.topk_dense(total[lo:hi], self._blocks.budgets[j], lo, np.int32))
        return wrong


def different(found: Pair, expected: Pair) -> int:
    """In how many places two sparse vectors differ, by index or by the value's bits."""
    missed = len(np.setxor1d(found[0], expected[0])) + abs(len(found[0]) - len(expected[0]))
    if missed:
        return missed
    return int(np.count_nonzero(found[1].view(np.int32) != expected[1].view(np.int32)))


def selection_rows(chosen: Kernels, args: argparse.Namespace, k: int) -> list[Row]:
    """Accumulate and top-k against np.add, whose own row comes first, and torch.topk."""
    rng = np.random.default_rng(args.seed)
    blocks = cut_blocks(args.size, k, BLOCKS)
    warm, cold = (Loop(chosen, blocks, rng, cold=cold) for cold in (False, True))
    total, grad = (rng.standard_normal(args.size, dtype=np.float32) for _ in range(2))
    tensor = torch.from_numpy(grad)
    candidates = [
        Candidate(partial(np.add, total, grad, out=total)),
        Candidate(warm.step, warm.prepare),
        Candidate(cold.step, cold.prepare),
        Candidate(lambda: torch.topk(tensor.abs(), k)),
    ]
    with shown() as tell:
        add_s, warm_s, cold_s, torch_s = timing.interleaved(
            candidates, args.repeats, args.warmup, tell=partial(tell, "accumulate + top-k")
        )
    wrong = warm.wrong(), cold.wrong(), wrong_against_torch(chosen, grad, tensor, k)
    touched = 12 * args.size  # two float32 read, one written
    name = "accumulate + exact top-k"
    rows = [
        judged(f"{name}, warm", warm_s, "np.add", add_s, at_most(2.2, 1.5)) | {"gb_per_s": rate(warm_s, touched)},
        judged(f"{name}, cold", cold_s, "np.add", add_s, at_most(4.5, 3)) | {"gb_per_s": rate(cold_s, touched)},
        judged(f"{name}, warm", warm_s, "torch.topk(g.abs(), k)", torch_s, at_least(30, 50)),
    ]
    streaming: Row = {"what": "np.add(r, g, out=r)", **timing.times(add_s), "gb_per_s": rate(add_s, touched)}
    return [streaming, *(row | {"wrong": count} for row, count in zip(rows, wrong, strict=True))]


def wrong_against_torch(chosen: Kernels, grad: Values, tensor: torch.Tensor, k: int) -> int:
    """torch breaks ties at random, so the magnitudes are compared, not the indices."""
    _, found = chosen.topk_dense(grad, k, 0, np.int32)
    expected = torch.topk(tensor.abs(), k).values.numpy()
    return int(np.count_nonzero(np.sort(np.abs(found)) != np.sort(expected)))


# -- sparse vectors ----------------------------------------------------------------------------------------------------


def random_sparse(rng: np.random.Generator, size: int, k: int) -> Pair:
    indices = np.sort(rng.choice(size, k, replace=False, shuffle=False)).astype(np.int32)
    return indices, rng.standard_normal(k, dtype=np.float32)


def addition_row(chosen: Kernels, args: argparse.Namespace, k: int) -> Row:
    """Adding two sorted sparse vectors."""
    rng = np.random.default_rng(args.seed)
    a, b = (random_sparse(rng, args.size, k) for _ in range(2))
    csr_a, csr_b = (as_csr(vector, args.size) for vector in (a, b))
    candidates = [Candidate(lambda: chosen.add(*a, *b)), Candidate(lambda: csr_a + csr_b)]
    with shown() as tell:
        ours_s, scipy_s = timing.interleaved(
            candidates, SHORT * args.repeats, args.warmup, tell=partial(tell, "sparse + sparse")
        )
    found, from_scipy = chosen.add(*a, *b), csr_a + csr_b
    touched = 8 * (2 * k + len(found[0]))
    row = judged(f"add two sparse vectors of {k:,}", ours_s, "scipy CSR add", scipy_s, at_least(1.5, 3))
    wrong = different(found, ORACLE.add(*a, *b)) + different(found, (from_scipy.indices, from_scipy.data))
    return row | {"gb_per_s": rate(ours_s, touched), "wrong": wrong}


def as_csr(vector: Pair, size: int) -> Any:
    """One row; with its entries in order, as scipy likes them best."""
    indices, values = vector
    matrix = scipy.sparse.csr_array((values, indices, np.array([0, len(indices)], np.int32)), shape=(1, size))
    matrix.has_canonical_format = True
    return matrix


def coding_rows(chosen: Kernels, args: argparse.Namespace, k: int) -> list[Row]:
    """A frame written and read again: its speed, its size, and whether it pays on a slow network."""
    indices, values = random_sparse(np.random.default_rng(args.seed), args.size, k)
    codec = Codec(chosen, "packed")
    frame = codec.encode(indices, values, 0, args.size)
    seconds = timing.timed(
        lambda: codec.decode(codec.encode(indices, values, 0, args.size), wide_indices=False),
        SHORT * args.repeats,
        args.warmup,
    )
    block = codec.decode(frame, wide_indices=False)
    wrong = different((block.indices, block.values), (indices, values))
    wrong += wrong_bytes(frame, Codec(ORACLE, "packed").encode(indices, values, 0, args.size))
    raw = 8 * k
    per_entry, compact = len(frame) / k, at_most(5.4, 5.1)
    name = f"encode + decode {k:,} entries"
    return [
        judged(name, seconds, "8 bytes/entry, 1 GB/s", [raw / 1e9], at_least(1))
        | {"gb_per_s": rate(seconds, raw), "wrong": wrong},
        judged(name, seconds, "time saved at 1 Gbit/s", [(raw - len(frame)) / LINK], at_least(1)) | {"wrong": wrong},
        checksum_row(frame, seconds, args),
        {
            "what": "bytes per entry",
            "yardstick": "8 bytes",
            "ratio": per_entry,
            "target": str(compact),
            "verdict": compact.verdict(per_entry),
            "wrong": wrong,
        },
    ]


def checksum_row(frame: npt.NDArray[np.uint8], coding: Sequence[float], args: argparse.Namespace) -> Row:
    """What it costs to protect a message: the checksums of its envelope when it is sent and when it arrives."""
    message = sealed(frame, STAMP, memory.HOST.messages)
    draft = Draft(message.copy())  # as the codec makes them: nothing is copied
    seconds = timing.timed(
        lambda: checked_stamp(sealed(draft, STAMP, memory.HOST.messages), 0), SHORT * args.repeats, args.warmup
    )
    wrong = wrong_bytes(draft.paper, message)
    row = judged(f"checksum of {len(frame):,} bytes, twice", seconds, "encode + decode", coding, at_most(0.2, 0.1))
    return row | {"gb_per_s": rate(seconds, 2 * len(frame)), "wrong": wrong}


def wrong_bytes(found: npt.NDArray[np.uint8], expected: npt.NDArray[np.uint8]) -> int:
    if len(found) != len(expected):
        return max(len(found), len(expected))
    return int(np.count_nonzero(found != expected))


# -- all of it ---------------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("what", "what"),
    Column("min ms", "min_ms", ".2f"),
    Column("median ms", "median_ms", ".2f"),
    Column("GB/s", "gb_per_s", ".2f"),
    Column("streaming", "streaming_gb_per_s", ".2f"),
    Column("yardstick", "yardstick"),
    Column("its median", "yardstick_ms", ".2f"),
    Column("ratio", "ratio", ".2f"),
    Column("of minima", "ratio_of_minima", ".2f"),
    Column("target", "target"),
    Column("reached", "verdict"),
    Column("#wrong", "wrong", "d"),
)


def main() -> int:
    args = arguments.parser(__doc__).parse_args()
    torch.set_num_threads(1)  # like everything else here
    chosen = kernels.load(args.backend)
    k = max(1, round(args.density * args.size))
    rows = [*selection_rows(chosen, args, k), addition_row(chosen, args, k), *coding_rows(chosen, args, k)]
    for row in rows:
        if "gb_per_s" in row:
            row["streaming_gb_per_s"] = rows[0]["gb_per_s"]
    facts = record.machine(chosen.name) | {"torch": str(torch.__version__), "scipy": scipy.__version__}
    title = f"n = {args.size:,} in {BLOCKS} blocks, k = {k:,}, float32, {args.repeats} repeats"
    print_table(title, COLUMNS, rows, caption=record.describe(facts))
    arguments.write_json(args, facts, rows, k=k)
    return 1 if any(row.get("wrong") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
