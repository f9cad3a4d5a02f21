"""``together.py JSON``: programs one after the other in the same processes, as starting takes longer than most of them.

JSON is a list of command lines: a program or ``-m module``, and its arguments.
"""

import json
import runpy
import sys
from pathlib import Path

from mpi4py import MPI


def main(commands):
    world = MPI.COMM_WORLD
    for command in commands:
        if world.rank == 0:
            print(f"=== {' '.join(command)}", flush=True)
        world.Barrier()  # what follows in the output is this one's
        run(command)
        world.Barrier()  # as between jobs: no rank is still in the last when another begins the next
    print("rank is through", flush=True)


def run(command):
    as_module = command[0] == "-m"
    sys.argv = command[as_module:]
    try:
        if as_module:
            runpy.run_module(command[1], run_name="__main__")
        else:
            sys.path[0] = str(Path(command[0]).parent)
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
