"""What the workloads share: each rank tells the campaign how far it is, and strikes itself when it is asked to.

Messages go to the campaign's socket, not through mpiexec, which may mix lines or be gone. Without a campaign they are
printed: ``mpiexec -n 3 python reduces.py '{"steps": 50}'``.
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import contextmanager

from mpi4py import MPI

world = MPI.COMM_WORLD
options = {"pace": 0.0, "fault": None, "between": False} | json.loads(sys.argv[1])
_line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
_campaign = os.environ.get("CHAOS_SOCKET")
_asked = False  # to strike at the next step


class Injected(Exception):
    """The exception that the campaign asked for."""


def tell(what, **more):
    message = json.dumps({"rank": world.rank, "what": what, **more})
    if _campaign is None:
        print(message, flush=True)
    else:
        _line.sendto(message.encode(), f"\0{_campaign}")


@contextmanager
def reporting():
    """Begins when all ranks have imported everything, and tells of the error that ends this rank."""
    signal.signal(signal.SIGUSR2, _on_signal)  # SIGUSR1 is MPICH's own: it tells of ranks that are gone
    world.Barrier()
    tell("ready", pid=os.getpid())
    try:
        yield
    except BaseException as error:
        ranks = [int(rank) for rank in getattr(error, "ranks", ())]
        tell("error", type=type(error).__name__, text=str(error)[:2000], ranks=ranks)
        raise


def steps():
    """Numbers of the steps. Ranks need different times for one, as they would for real data."""
    for step in range(options["steps"]):
        tell("step", step=step)
        if _asked:
            _strike()
        yield step
        time.sleep(options["pace"] * (1 + (world.rank + step) % 3) / 2)
    tell("finishing")


def _on_signal(_number, _frame):
    global _asked
    _asked = True
    if not options["between"]:
        _strike()


def _strike():
    global _asked
    _asked = False
    tell("struck")
    fault = options["fault"]
    if fault.startswith("os._exit"):
        os._exit(int(fault[-2]))
    if fault == "sys.exit(1)":
        sys.exit(1)
    raise Injected("the campaign asked for it")
