"""``checkpoint.py FOLDER straight|save|resume``: twelve steps at once, or six and, in new processes, six more.

Every rank saves its part; rank 0 saves a gathered one too. ``resume`` on another number of ranks uses that.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from mpi.programs.checks import world
from setting import TEAMS, P, assert_same_weights, backward, batch, digest, me, small_model

import spardl.torch as spt

folder, mode = Path(sys.argv[1]), sys.argv[2]
steps = {"straight": range(12), "save": range(12), "resume": range(6, 12)}[mode]
model = small_model(seed=me)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sync = spt.SparDL(density=0.05, teams=TEAMS)
handle = spt.distribute(optimizer, model, sync=sync, bucket_mb=0.0005)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)


def total_owed():
    owed = np.concatenate([residual.double().numpy().ravel() for _, residual in sorted(handle.residuals.items())])
    world.Allreduce(owed.copy(), owed)
    return owed


if mode == "resume":
    saved = torch.load(folder / "shared")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    same_ranks = saved["handle"]["ranks"] == P
    handle.load_state_dict(torch.load(folder / f"rank{me}") if same_ranks else saved["handle"])
    np.testing.assert_allclose(total_owed(), np.load(folder / "owed.npy"), rtol=0, atol=0 if same_ranks else 1e-5)
for step in steps:
    if mode == "save" and step == 6:
        gathered = handle.gathered_state_dict()
        torch.save(handle.state_dict(), folder / f"rank{me}")
        owed = total_owed()
        if me == 0:
            np.save(folder / "owed.npy", owed)
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "handle": gathered}
            torch.save(parts | {"scheduler": scheduler.state_dict()}, folder / "shared")
            joined = spt.join_states([handle.state_dict()]) if P == 1 else gathered
            assert joined["ranks"] == P
        else:
            assert gathered is None
        world.Barrier()
        os.kill(os.getpid(), signal.SIGKILL)  # as a cluster does
    optimizer.zero_grad()
    backward(model.eval(), batch(me, step))
    optimizer.step()
    scheduler.step()
    assert_same_weights(model)
if me == 0:
    (folder / f"{mode}.json").write_text(json.dumps({"digest": digest(model), "ranks": P}))
