"""A sparse all-reduce of a gradient as large as VGG-16's, next to the MPI's dense one.

mpiexec -n 4 python examples/vgg16_allreduce.py
"""

import hashlib
import time

import numpy as np
from mpi4py import MPI
from rich.console import Console
from rich.table import Table

from spardl import SparseAllreduce

SIZE, DENSITY, REDUCES = 14_728_266, 0.01, 12
comm = MPI.COMM_WORLD
rng = np.random.default_rng(comm.rank)
console = Console(quiet=comm.rank > 0)  # rank 0 does the talking


def slowest(seconds: list[float]) -> float:
    """The median over the calls, in ms; a call takes as long as its slowest rank. The first two only warm up."""
    per_call = np.array(seconds)
    comm.Allreduce(MPI.IN_PLACE, per_call, MPI.MAX)
    return 1e3 * float(np.median(per_call[2:]))


# All ranks build the reducer together, once. It remembers, from one call to the next, the residual (what was not sent
# yet, and is added to the next gradient) and the thresholds that make choosing the largest entries cheap. The first
# call takes longer: it allocates the buffers.
# teams=2 would save rounds where latency counts; wire_dtype="bf16" would halve the bytes of the values.
reducer = SparseAllreduce(comm, SIZE, density=DENSITY)
console.print(f"{comm.size} ranks, n = {SIZE:,}, at most k = {reducer.k:,} entries per result", highlight=False)

sparse_times, dense_times, results = [], [], hashlib.blake2b()
grad, dense_sum = np.empty(SIZE, np.float32), np.empty(SIZE, np.float32)
balance = np.zeros(SIZE)  # what this rank handed in, later minus what came out
for call in range(1, REDUCES + 1):
    rng.standard_normal(dtype=np.float32, out=grad)  # stands for loss.backward(): another gradient on every rank
    balance += grad

    comm.Barrier()
    started = time.perf_counter()
    # The one call that matters. It returns a SparseVector: the sum over all ranks, the same bits on every rank.
    # A training loop would apply it: weights[result.indices] -= learning_rate / ranks * result.values
    result = reducer.reduce(grad)
    sparse_times.append(time.perf_counter() - started)

    comm.Barrier()
    started = time.perf_counter()
    comm.Allreduce(grad, dense_sum)
    dense_times.append(time.perf_counter() - started)

    # Every rank got the whole result, so each takes its share of it off the balance.
    balance[result.indices] -= result.values / comm.size
    results.update(result.indices.tobytes() + result.values.tobytes())
    console.print(
        f"reduce {call:2} of {REDUCES}: {result.nnz:,} entries, {1e3 * sparse_times[-1]:.1f} ms", highlight=False
    )

# The law: over all ranks, gradients handed in = results + residuals. Nothing is lost, however little was sent.
balance -= reducer.residual
comm.Allreduce(MPI.IN_PLACE, balance)
lost = float(np.abs(balance).max() / np.abs(result.values).max())
same = len(set(comm.allgather(results.digest()))) == 1

# The traffic of the last call, as counted; for a dense all-reduce, what even the best algorithm has to send.
traffic = reducer.traffic
sent = max(comm.allgather(traffic.bytes_sent))
least = 2 * (comm.size - 1) * 4 * SIZE // comm.size
sparse_ms, dense_ms = slowest(sparse_times), slowest(dense_times)

table = Table("", "sparse (spardl)", "dense (MPI)", "sparse / dense", caption="* bandwidth-optimal: 2(P-1)/P · 4n")
table.add_row("median time", f"{sparse_ms:.1f} ms", f"{dense_ms:.1f} ms", f"{sparse_ms / dense_ms:.3f}")
table.add_row("bytes sent per rank", f"{sent:,}", f"{least:,} *", f"{sent / max(least, 1):.4f}")
table.add_row("rounds", f"{traffic.rounds}")
table.add_row("messages per rank", f"{traffic.messages_sent}")
table.add_row("conservation error", f"{lost:.1e}")
table.add_row("same bits on all ranks", "yes" if same else "NO")
console.print(table)
raise SystemExit(0 if same and lost < 1e-5 else 1)
