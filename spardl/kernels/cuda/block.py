"""What the threads of one block do together, without warp instructions: those depend on the hardware's width."""

from typing import Any

from spardl.kernels.cuda.jit import cuda, device


@device
def scan(shared: Any, own: Any) -> Any:
    """The sum of ``own`` over the threads before this one, and over all. All threads of the block must call it.

    ``shared`` has room for a number per thread. It may be used again by the next call at once.
    """
    me = cuda.threadIdx.x
    threads = cuda.blockDim.x
    shared[me] = own
    cuda.syncthreads()
    reach = 1
    while reach < threads:
        more = 0
        if me >= reach:
            more = shared[me - reach]
        cuda.syncthreads()
        shared[me] += more
        cuda.syncthreads()
        reach *= 2
    through_me = shared[me]
    total = shared[threads - 1]
    cuda.syncthreads()
    return through_me - own, total


@device
def lowest_one(word: Any) -> Any:
    """Position of the lowest bit that is set in a positive int64."""
    return cuda.popc(~word & (word - 1))


@device
def before_tile(sums: Any, tile: Any) -> Any:
    """The sum over the tiles before this one, of ``sums`` that include each tile itself."""
    if tile == 0:
        return 0
    return sums[tile - 1]
