"""Dense all-reduce by the MPI library itself."""

import numpy as np

from spardl.collectives.bruck import bruck
from spardl.effects import Allreduce, Collective
from spardl.errors import DtypeDisagreement
from spardl.kernels.api import Values


def dense_mpi(ranks: int, rank: int, grad: Values, out: Values) -> Collective[None]:
    """``out`` = the sum of all ranks' ``grad``, which is left alone.

    The order of addition is the library's, and so is the promise that all ranks get the same bits: MPI recommends it.
    """
    # What the library has begun cannot be called off, and a rank that fails before it begins would leave the others in
    # it. So first all tell all that they are ready (their gradients were found good), ⌈log₂P⌉ rounds of a few bytes.
    dtypes = yield from bruck(range(ranks), rank, np.frombuffer(grad.dtype.name.encode(), np.uint8))
    for other, name in enumerate(dtypes):
        if (theirs := name.tobytes().decode(errors="replace")) != grad.dtype.name:
            raise DtypeDisagreement({rank: grad.dtype.name, other: theirs})
    if ranks == 1:
        np.copyto(out, grad)
    else:
        yield Allreduce(grad, out, "the library's Allreduce")
