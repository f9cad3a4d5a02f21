"""What a timeline costs a reduce, and what is left of timeline and stall inspector when nothing is to be told.

    mpiexec -n 2 python benchmarks/timeline.py --size 1000000 --json timeline.json

With a timeline and without take turns. Without one, all that is left is to ask once per reduce whether there is one;
the inspector notes every message that comes. Both are timed alone and told as a share of a reduce.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import arguments
import numpy as np
from mpi4py import MPI

import spardl
from spardl import timeline
from spardl.bench import ranks, record, timing
from spardl.bench.progress import shown
from spardl.bench.table import Column, Row, print_table
from spardl.bench.timing import Candidate
from spardl.runtime.inspector import Lookout
from spardl.timeline import Recorder

world = MPI.COMM_WORLD
OFTEN = 10_000


class Contender:
    """A reducer with or without a recorder, which it finds when it is built and whenever it reduces."""

    def __init__(self, recorder: Recorder | None, args: object, grad: np.ndarray) -> None:
        self._recorder, self._grad = recorder, grad
        timeline._recorder = recorder
        self._allreduce = spardl.SparseAllreduce(world, len(grad), density=args.density, backend=args.backend)

    def reduce(self) -> None:
        timeline._recorder = self._recorder
        self.result = self._allreduce.reduce(self._grad)
        self.rounds = self._allreduce.traffic.rounds


def alone(action: Callable[[], object]) -> float:
    """Seconds that one of very many takes."""

    def often() -> None:
        for _ in range(OFTEN):
            action()

    return min(timing.timed(often, 5, 1)) / OFTEN


def main() -> int:
    flags = arguments.parser(__doc__)
    flags.set_defaults(repeats=50)
    args = flags.parse_args()
    grad = np.random.default_rng([args.seed, world.rank]).standard_normal(args.size, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(str(Path(folder) / "trace.json"), world.rank, world.size, "")
        without, with_one = Contender(None, args, grad), Contender(recorder, args, grad)
        with shown(world.rank == 0) as tell:
            seconds = timing.interleaved(
                [Candidate(without.reduce), Candidate(with_one.reduce)],
                args.repeats,
                args.warmup,
                agree=partial(ranks.decide, world),
                before_each=partial(ranks.barrier, world),
                tell=partial(tell, "reduces"),
            )
        timeline._recorder = None
        recorder._file.close()
    off, on = (ranks.gather(world, np.array(s)).max(axis=0) for s in seconds)  # the slowest rank's
    reduce = float(np.median(off))
    lookout = Lookout(world.size)
    asking = alone(timeline.current)
    noting = without.rounds * alone(lambda: lookout.note(0, 7, 1, "Spar-Reduce-Scatter round 0"))
    rows: list[Row] = [
        {"what": "reduce, no timeline", **timing.times(off)},
        {"what": "reduce, timeline", **timing.times(on), **timing.ratios(on, off)},
        {"what": "asking for a timeline", "min_ms": 1e3 * asking, "ratio": asking / reduce},
        {"what": f"noting {without.rounds} messages", "min_ms": 1e3 * noting, "ratio": noting / reduce},
    ]
    wrong = int((without.result.to_dense() != with_one.result.to_dense()).sum())
    if world.rank == 0:
        columns = (
            Column("what", "what"),
            Column("min ms", "min_ms", ".5f"),
            Column("median ms", "median_ms", ".2f"),
            Column("of a reduce without one", "ratio", ".6f"),
            Column("of minima", "ratio_of_minima", ".3f"),
        )
        facts = record.machine(args.backend)
        title = f"n = {args.size:,}, density {args.density:g}, {world.size} ranks; #wrong: {wrong}"
        print_table(title, columns, rows, caption=record.describe(facts))
        arguments.write_json(args, facts, rows, launcher=f"mpiexec -n {world.size}", wrong=wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
