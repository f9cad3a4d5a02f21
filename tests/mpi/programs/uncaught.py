"""An error that nobody catches: every rank ends with a traceback of its own, none hangs, not even in MPI_Finalize."""

import numpy as np
from checks import gradient, world

import spardl

allreduce = spardl.SparseAllreduce(world, 200_000, k=100_000, timeout=20)
allreduce.reduce(gradient(world.rank, 0, 200_000))
grad = gradient(world.rank, 1, 200_000)
if world.rank == 1:
    grad[5] = np.nan
allreduce.reduce(grad)
