"""Ranks whose clocks differ by seconds find out by how much, when they first use a communicator."""

import json
import os
import sys
from pathlib import Path

from mpi4py import MPI

from spardl import timeline
from spardl.runtime.group import resolve

world = MPI.COMM_WORLD
P, me = world.size, world.rank
folder = Path(sys.argv[1])
os.environ["SPARDL_TIMELINE"] = str(folder / "trace.json")
timeline.begin(me, P, f"node{me}")
recorder = timeline.current()
SECONDS = 10**9
recorder._to_wall_clock -= 7 * me * SECONDS
resolve(world, 30)
lines = (folder / f"trace.json.rank{me}.part").read_text().splitlines()
(offset,) = [line["clock_offset"] for line in map(json.loads, lines) if "clock_offset" in line]
assert offset == 0 if me == 0 else abs(offset - 7 * me * SECONDS) < 0.1 * SECONDS, offset

# A communicator of some ranks has another rank 0; what was measured against everybody's stays.
part = world.Split(me == 0)
resolve(part, 30)
lines = (folder / f"trace.json.rank{me}.part").read_text().splitlines()
assert sum("clock_offset" in line for line in lines) == 1
