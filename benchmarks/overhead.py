"""What the torch wrapper costs on one rank: a training step of VGG-16 with ``distribute``, without, and the core alone.

    python benchmarks/overhead.py --batch 32 --json overhead.json

The wrapper's own time is a step with ``distribute``, less a plain step, less the core's reduce of as large a gradient:
what hooks, copying gradients into buckets and writing results back take. The target: at most 5 % of a plain step.
"""

import sys
from functools import partial
from pathlib import Path

import arguments
import numpy as np
import torch
from mpi4py import MPI
from torch import nn

import spardl
import spardl.torch as spt
from spardl.bench import record, timing
from spardl.bench.progress import shown
from spardl.bench.table import Column, Row, print_table
from spardl.bench.timing import Candidate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from models import vgg16

TARGET = 5.0  # per cent


class Trainer:
    """One model and optimizer, stepped on the same images again and again."""

    def __init__(self, batch: int, density: float | None) -> None:
        torch.manual_seed(0)
        self.model = vgg16()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.inputs, self.targets = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
        if density is not None:
            self.handle = spt.distribute(
                self.optimizer, self.model, sync=spt.SparDL(density=density), comm=MPI.COMM_SELF
            )

    def step(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.inputs), self.targets).backward()
        self.optimizer.step()


def wrong() -> int:
    """Elements in which a few steps with everything sent differ from plain torch's."""
    plain, wrapped = Trainer(2, None), Trainer(2, 1.0)
    for trainer in (plain, wrapped):
        trainer.step()
        trainer.step()
    pairs = zip(plain.model.parameters(), wrapped.model.parameters(), strict=True)
    return sum(int((ours != theirs).sum()) for ours, theirs in pairs)


def main() -> int:
    flags = arguments.parser(__doc__)
    flags.add_argument("--batch", type=int, default=32, help="images per step (default: %(default)s)")
    flags.set_defaults(warmup=2, repeats=20)
    args = flags.parse_args()
    torch.set_num_threads(1)
    plain, wrapped = Trainer(args.batch, None), Trainer(args.batch, args.density)
    args.size = sum(p.numel() for p in plain.model.parameters())
    core = spardl.SparseAllreduce(MPI.COMM_SELF, args.size, density=args.density, backend=args.backend)
    grad = np.random.default_rng(args.seed).standard_normal(args.size, dtype=np.float32)
    candidates = [Candidate(plain.step), Candidate(wrapped.step), Candidate(lambda: core.reduce(grad))]
    with shown() as tell:
        seconds = timing.interleaved(candidates, args.repeats, args.warmup, tell=partial(tell, "steps"))
    plain_s, wrapped_s, core_s = map(np.array, seconds)
    own = float(np.median(wrapped_s - plain_s - core_s))
    share = 100 * own / float(np.median(plain_s))
    rows: list[Row] = [
        {"what": "plain step", **timing.times(plain_s)},
        {"what": "step with distribute", **timing.times(wrapped_s)},
        {"what": "the core's reduce", **timing.times(core_s)},
        {"what": "the wrapper's own", "median_ms": 1e3 * own, "share": share, "target": f"≤ {TARGET:g} %"},
    ]
    rows[-1] |= {"verdict": "yes" if share <= TARGET else "no", "wrong": wrong()}
    columns = (
        Column("what", "what"),
        Column("min ms", "min_ms", ".1f"),
        Column("median ms", "median_ms", ".1f"),
        Column("% of a plain step", "share", ".1f"),
        Column("target", "target"),
        Column("reached", "verdict"),
        Column("#wrong", "wrong", "d"),
    )
    facts = record.machine(args.backend) | {"torch": str(torch.__version__)}
    title = f"VGG-16, n = {args.size:,}, one rank, one thread, {args.batch} images, density {args.density:g}"
    print_table(title, columns, rows, caption=record.describe(facts))
    arguments.write_json(args, facts, rows)
    return 1 if rows[-1]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
