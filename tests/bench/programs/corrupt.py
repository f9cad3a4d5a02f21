"""``spardl bench`` where reduces go wrong, in the way that is named first; the other arguments are the command's."""

import sys

import numpy as np
from mpi4py import MPI

import spardl
from spardl.cli import main

reduce = spardl.SparseAllreduce.reduce
way = sys.argv.pop(1)


def corrupted(self, grad):
    result = reduce(self, grad)
    keep, values = np.ones(result.nnz, bool), result.values.copy()
    if way == "lost":  # on all ranks
        keep[result.nnz // 2] = False
    elif way == "nan":
        values[-1] = np.nan
    elif MPI.COMM_WORLD.rank == 1:  # one bit, far below what the law tolerates
        values[0] = np.nextafter(values[0], np.inf, dtype=values.dtype)
    return spardl.SparseVector(result.indices[keep], values[keep], result.size)


spardl.SparseAllreduce.reduce = corrupted
main(["bench", *sys.argv[1:]])
