"""Runs simulated blocks and threads in an order of one's choice, one thread at a time.

Numba's simulator makes a Python thread of every CUDA thread and polls them. Here they are greenlets that take turns:
one runs until it waits for the others or ends, then the next one does. That is far faster, repeatable, and lets tests
shuffle both the order of blocks and that of the threads between two barriers. ``install()`` puts it in the place of
the simulator's own.
"""

import random
import threading

import greenlet
import numpy as np
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import Dim3


class Block:
    """In place of the simulator's BlockManager. ``seed`` None: blocks and threads in order."""

    seed = None

    def __init__(self, function, grid_dim, block_dim, debug):
        self._function, self._blocks, self._threads = function, grid_dim[0], block_dim[0]

    def run(self, grid_point, *args):
        blocks = list(range(self._blocks))
        self._shuffle(blocks, "blocks")
        block = blocks[grid_point[0]]
        here = threading.current_thread()  # kernels find out from it who they are
        here.blockIdx = Dim3(block, 0, 0)
        here.syncthreads = greenlet.getcurrent().switch
        places = [Dim3(thread, 0, 0) for thread in range(self._threads)]
        running = [(place, greenlet.greenlet(self._function_without_warnings)) for place in places]
        barrier = 0
        while running:
            self._shuffle(running, f"block {block} barrier {barrier}")
            for place, thread in running:
                here.threadIdx = place
                thread.switch(*(args if barrier == 0 else ()))
            running = [(place, thread) for place, thread in running if not thread.dead]
            barrier += 1

    def _function_without_warnings(self, *args):
        with np.errstate(all="ignore"):  # a device knows none
            self._function(*args)

    def _shuffle(self, items, what):
        if self.seed is not None:
            random.Random(f"{self.seed} {what}").shuffle(items)


def install():
    simulator.BlockManager = Block
