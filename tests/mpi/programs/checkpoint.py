"""``checkpoint.py FOLDER straight|save|resume``: thirty reduces at once, or in two halves."""

import pickle
import sys
from pathlib import Path

from checks import gradient, world

import spardl

folder, mode = Path(sys.argv[1]), sys.argv[2]
teams = {4: 2, 6: 3, 3: 3}.get(world.size, 1)
allreduce = spardl.SparseAllreduce(world, 5000, density=0.02, teams=teams, timeout=30)
steps = {"straight": range(30), "save": range(15), "resume": range(15, 30)}[mode]
if mode == "resume":
    allreduce.load_state_dict(pickle.loads((folder / f"save.{world.rank}").read_bytes()))
last = [allreduce.reduce(gradient(world.rank, step, 5000)) for step in steps][-1]
(folder / f"{mode}.{world.rank}").write_bytes(pickle.dumps(allreduce.state_dict()))
(folder / f"{mode}.result.{world.rank}").write_bytes(last.indices.tobytes() + last.values.tobytes())
