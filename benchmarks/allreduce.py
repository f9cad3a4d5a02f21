"""SparseAllreduce next to the MPI's own dense all-reduce of the same vector, in the same run.

    mpiexec -n 6 python benchmarks/allreduce.py --teams 1,2
    mpiexec -n 2 python benchmarks/allreduce.py --size 10000000 --wire-dtype bf16 --json allreduce.json

The contenders take turns, with a barrier before each turn; a turn takes as long as its slowest rank. GB/s is the dense
vector's bytes over the median time, whatever was sent (what nccl-tests calls algbw). "bytes / dense" compares the bytes
that the busiest rank sent with the 2 (P-1)/P · 4 n that a dense all-reduce cannot do without. Exits with 1 if anything
is wrong: if the ranks' results differ in a bit, or if results and residuals do not add up to what was handed in.
"""

import argparse
import hashlib
import itertools
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import arguments
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from spardl import SparseAllreduce, SparseVector, kernels
from spardl.bench import record, timing
from spardl.bench.progress import shown
from spardl.bench.table import Column, Row, print_table
from spardl.bench.timing import Candidate
from spardl.wire import INDEX_CODINGS, VALUE_CODINGS

Gradient = npt.NDArray[np.float32]
GRADIENTS = 4  # different ones, in turn
FIRST_REDUCES = 3  # watched for their use of memory
TOLERANCE = 1e-5  # of what is handed in minus what comes out, over the largest magnitude that comes out
CHUNK = 1 << 20


def parse_args() -> argparse.Namespace:
    flags = arguments.parser(__doc__)
    flags.add_argument("--teams", type=team_list, default=[1], help="team counts to compare, e.g. 1,2 (default: 1)")
    flags.add_argument("--wire", default="auto", choices=INDEX_CODINGS, help="index coding (default: %(default)s)")
    flags.add_argument("--wire-dtype", default="same", choices=VALUE_CODINGS, help="values (default: %(default)s)")
    return flags.parse_args()


def team_list(text: str) -> list[int]:
    return [int(count) for count in text.split(",")]


def barrier(comm: MPI.Intracomm) -> None:
    """Waits without spinning: ranks that are done must not slow down those that share a core with them."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(50e-6)


class Sparse:
    """A SparseAllreduce that is fed gradients in turn and whose results are all taken into one hash."""

    def __init__(self, reducer: SparseAllreduce, teams: int, gradients: list[Gradient]) -> None:
        self.reducer, self.teams = reducer, teams
        self._gradients = itertools.cycle(gradients)
        self._hash = hashlib.blake2b()
        self._result: SparseVector | None = None

    def run(self) -> None:
        self.reduce(next(self._gradients))

    def reduce(self, grad: Gradient) -> SparseVector:
        self._result = self.reducer.reduce(grad)
        return self._result

    def digest(self) -> bytes:
        """The hash of all results so far. Hashing takes time, so it waits until someone asks between two reduces."""
        if self._result is not None:
            self._hash.update(self._result.indices.tobytes() + self._result.values.tobytes())
            self._result = None
        return self._hash.digest()


# -- memory ------------------------------------------------------------------------------------------------------------


def build(comm: MPI.Intracomm, args: argparse.Namespace, teams: int, gradients: list[Gradient]) -> tuple[Sparse, Row]:
    """A contender after its first reduces, and the memory that these took, as multiples of the gradient's."""

    def first_reduces() -> Sparse:
        options = {"backend": args.backend, "wire": args.wire, "wire_dtype": args.wire_dtype}
        reducer = SparseAllreduce(comm, args.size, density=args.density, teams=teams, **options)
        sparse = Sparse(reducer, teams, gradients)
        for _ in range(FIRST_REDUCES):
            sparse.run()
            sparse.digest()
        return sparse

    sparse, arrays, process = peak_memory(first_reduces)
    # One dense buffer is the residual, which the law demands; the question is what there is beside it.
    dense = gradients[0].nbytes
    beyond = np.array([arrays / dense - 1, process / dense - 1])
    comm.Allreduce(MPI.IN_PLACE, beyond, MPI.MAX)
    return sparse, {"what": "memory", "teams": teams, "arrays_per_dense": beyond[0], "process_per_dense": beyond[1]}


def peak_memory(function: Callable[[], Sparse]) -> tuple[Sparse, int, int]:
    """What a function returns, and the bytes it needed at its peak: of NumPy and Python, and of the whole process.

    The second counts also what C++ and MPI allocate, but only where it exceeds the process's peak so far.
    """
    before = peak_resident()
    tracemalloc.start()
    result = function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, peak, peak_resident() - before


def peak_resident() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# -- correctness -------------------------------------------------------------------------------------------------------


def check(comm: MPI.Intracomm, sparse: Sparse, grad: Gradient) -> Row:
    """One more reduce: what goes in must come out or stay behind. All results so far must be the same everywhere."""
    old = sparse.reducer.residual.copy()
    result = sparse.reduce(grad)
    largest = float(np.abs(result.values).max(initial=0)) or 1.0
    worst, wrong = 0.0, 0
    for lo in range(0, len(grad), CHUNK):
        part = slice(lo, lo + CHUNK)
        missing = grad[part].astype(np.float64) + old[part] - sparse.reducer.residual[part]
        comm.Allreduce(MPI.IN_PLACE, missing)
        first, last = np.searchsorted(result.indices, [lo, lo + CHUNK])
        missing[result.indices[first:last] - lo] -= result.values[first:last]
        error = np.abs(missing) / largest
        worst = max(worst, float(error.max()))
        wrong += int(np.count_nonzero(~(error < TOLERANCE)))  # so that NaN counts
    digests = comm.allgather(sparse.digest())
    odd = sum(digest != digests[0] for digest in digests)
    counts = np.array([wrong + odd, result.nnz > sparse.reducer.k])
    comm.Allreduce(MPI.IN_PLACE, counts, MPI.MAX)  # one verdict for all ranks
    return {"law": worst, "same_bits": odd == 0, "wrong": int(counts.sum())}


# -- all of it ---------------------------------------------------------------------------------------------------------


def race(comm: MPI.Intracomm, args: argparse.Namespace, field: list[Sparse], grad: Gradient) -> npt.NDArray[np.float64]:
    """Seconds of the slowest rank, by contender and repeat; the dense all-reduce comes first."""
    total = np.empty_like(grad)
    dense = Candidate(lambda: comm.Allreduce(grad, total))
    with shown(comm.rank == 0) as tell:
        seconds = timing.interleaved(
            [dense, *(Candidate(sparse.run, prepare=sparse.digest) for sparse in field)],
            args.repeats,
            args.warmup,
            before_each=lambda: barrier(comm),
            tell=partial(tell, "all-reduce"),
        )
    slowest = np.array(seconds)
    comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return slowest


def timing_row(seconds: npt.NDArray[np.float64], dense: npt.NDArray[np.float64], size: int) -> Row:
    ours, theirs = seconds.tolist(), dense.tolist()
    rate = 4 * size / float(np.median(seconds)) / 1e9
    return timing.times(ours) | timing.ratios(ours, theirs) | {"gb_per_s": rate}


def traffic_row(comm: MPI.Intracomm, sparse: Sparse, dense_bytes: int) -> Row:
    """The busiest rank's traffic in the last reduce."""
    traffic = sparse.reducer.traffic
    counts = np.array([traffic.rounds, traffic.messages_sent, traffic.bytes_sent])
    comm.Allreduce(MPI.IN_PLACE, counts, MPI.MAX)
    rounds, messages, sent = (int(count) for count in counts)
    return {"rounds": rounds, "messages": messages, "bytes_sent": sent, "bytes_per_dense": sent / (dense_bytes or 1)}


RACE_COLUMNS = (
    Column("what", "what"),
    Column("teams", "teams", "d"),
    Column("min ms", "min_ms", ".2f"),
    Column("median ms", "median_ms", ".2f"),
    Column("ratio", "ratio", ".3f"),
    Column("of minima", "ratio_of_minima", ".3f"),
    Column("rounds", "rounds", "d"),
    Column("messages", "messages", "d"),
    Column("bytes sent", "bytes_sent", ",d"),
    Column("bytes / dense", "bytes_per_dense", ".4f"),
    Column("GB/s", "gb_per_s", ".2f"),
    Column("law, error", "law", ".1e"),
    Column("#wrong", "wrong", "d"),
)
MEMORY_COLUMNS = (
    Column("what", "what"),
    Column("teams", "teams", "d"),
    Column("NumPy and Python", "arrays_per_dense", ".2f"),
    Column("whole process", "process_per_dense", ".2f"),
)


def show(args: argparse.Namespace, rows: list[Row], memory: list[Row], **facts_of_run: int) -> None:
    facts = record.machine(kernels.load(args.backend).name)
    facts["mpi"] = " ".join(MPI.Get_library_version().splitlines()[0].split())
    ranks, k, dense_bytes = (facts_of_run[name] for name in ("ranks", "k", "dense_bytes"))
    title = (
        f"{ranks} ranks, n = {args.size:,}, k = {k:,}, float32, {args.repeats} repeats; "
        f"dense: at least {dense_bytes:,} bytes sent per rank"
    )
    print_table(title, RACE_COLUMNS, rows, caption=record.describe(facts))
    peak = (
        f"Peak of the first {FIRST_REDUCES} reduces beyond gradient and residual, over the dense size (1 + O(k) is due)"
    )
    print_table(peak, MEMORY_COLUMNS, memory)
    arguments.write_json(args, facts, [*rows, *memory], launcher=f"mpiexec -n {ranks}", **facts_of_run)


def main() -> int:
    args, comm = parse_args(), MPI.COMM_WORLD
    rng = np.random.default_rng([args.seed, comm.rank])
    gradients = [rng.standard_normal(args.size, dtype=np.float32) for _ in range(GRADIENTS)]
    field, memory = zip(*(build(comm, args, teams, gradients) for teams in args.teams), strict=True)
    dense, *others = race(comm, args, list(field), gradients[0])

    dense_bytes = 2 * (comm.size - 1) * 4 * args.size // comm.size
    rows: list[Row] = [{"what": "comm.Allreduce", **timing_row(dense, dense, args.size)}]
    for sparse, seconds in zip(field, others, strict=True):
        row: Row = {"what": "SparseAllreduce", "teams": sparse.teams, **timing_row(seconds, dense, args.size)}
        rows.append(row | traffic_row(comm, sparse, dense_bytes) | check(comm, sparse, gradients[0]))
    if comm.rank == 0:
        show(args, rows, list(memory), ranks=comm.size, k=field[0].reducer.k, dense_bytes=dense_bytes)
    return 1 if any(row.get("wrong") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
