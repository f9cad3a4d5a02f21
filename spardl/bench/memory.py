"""How much memory a contender needs beside gradient and residual."""

import resource
import sys
import tracemalloc
from collections.abc import Callable

from spardl.bench import ranks
from spardl.bench.runner import Runner
from spardl.bench.table import Row
from spardl.runtime.library import MPI

FIRST_REDUCES = 3  # watched


def watched(comm: MPI.Intracomm, build: Callable[[], Runner], dense: int) -> tuple[Runner, Row]:
    """A contender after its first reduces, and the memory that these took on any rank, as multiples of ``dense`` bytes.

    A sparse one has to have one of them, the residual, which is not counted. Nothing is told of the whole process
    where it had needed as much before.
    """

    def first_reduces() -> Runner:
        runner = build()
        for _ in range(FIRST_REDUCES):
            runner.run()
            runner.digest()
        return runner

    runner, arrays, process = _peak(first_reduces)
    due = 0 if runner.contender.is_dense else 1
    arrays_per_dense, process_per_dense = ranks.largest(comm, arrays / dense - due, process / dense - due)
    row = {"arrays_per_dense": arrays_per_dense}
    return runner, row | ({"process_per_dense": process_per_dense} if process_per_dense > 0 else {})


def _peak(function: Callable[[], Runner]) -> tuple[Runner, int, int]:
    """What a function returns, and the bytes it needed at its peak: of NumPy and Python, and of the whole process.

    The second counts also what C++ and MPI allocate, but only where it exceeds the process's peak so far.
    """
    before = _peak_resident()
    tracemalloc.start()
    result = function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, peak, _peak_resident() - before


def _peak_resident() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
