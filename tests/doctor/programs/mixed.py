"""Rank 2 was started with other code: every rank raises the same error, and the doctor says where the code is."""

import re

from mpi4py import MPI

import spardl
from spardl.doctor.examine import examine

comm = MPI.COMM_WORLD
try:
    spardl.SparseAllreduce(comm, 100, k=10, timeout=30)
except RuntimeError as error:
    one, other = (
        rf"'{re.escape(spardl.__version__)} with code (\w+)' on {ranks}" for ranks in ("ranks 0, 1", "rank 2")
    )
    found = re.match(
        rf"SparseAllreduce: the ranks run different code of spardl: {one} but {other}. Install", str(error)
    )
    assert found is not None, error
    assert found[1] != found[2]
else:
    raise AssertionError("mixed code was not found")
(verdict,) = examine(comm, -1, 30).verdicts
assert (verdict.item, verdict.level) == ("spardl", "error"), verdict
assert "on rank 2 (" in verdict.what, verdict
if comm.rank == 2:
    assert spardl.__path__[0] in verdict.what, verdict
comm.Barrier()
print("rank done", flush=True)
