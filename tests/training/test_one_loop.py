"""A script that switches ``sync=`` does not change its loop."""

import pytest
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt

SYNCS = [
    spt.Dense(),
    spt.SparDL(density=0.2),
    spt.RNA(policy=spt.All()),
    spt.RNA(spt.SparDL(density=0.2), policy=spt.All()),
    spt.PartialReduce(),
    spt.PartialReduce(weights="constant", optimizer_state="average"),
    spt.PartialReduce(reduce=spt.SparDL(density=0.2)),
    spt.Hop(),
    spt.Hop("complete", staleness=2, order="serial"),
    spt.Gossip(),
]


@pytest.mark.parametrize("sync", SYNCS, ids=str)
def test_the_same_loop(sync):
    """Accumulating, clipping, evaluating and saving, to the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 5), nn.BatchNorm1d(5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = model[0].weight.detach().clone()
    with spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF) as handle:
        for _ in range(3):
            optimizer.zero_grad()
            with handle.no_sync():
                model(torch.randn(4, 20)).square().sum().backward()
            model(torch.randn(4, 20)).square().sum().backward()
            handle.synchronize()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            assert norm > 0.1
            optimizer.step()
        handle.settle()
        handle.verify()
        state = handle.state_dict()
        gathered = handle.gathered_state_dict()
        handle.load_state_dict(state)
        handle.broadcast_buffers()
        assert gathered is not None
        assert state["steps"] == handle.stats.steps == 3
        assert handle.metrics.contributors == [1] * 3
        assert handle.metrics.staleness == {0: 3}
    assert handle.stats.steps == 3
    assert not torch.equal(model[0].weight, start)
    handle.finish()  # once is enough
    handle.remove()
    before = model[0].weight.detach().clone()
    optimizer.zero_grad()
    model(torch.randn(4, 20)).square().sum().backward()
    optimizer.step()  # alone again
    assert not torch.equal(model[0].weight, before)


@pytest.mark.parametrize("sync", SYNCS, ids=str)
def test_an_exception_in_the_loop_is_not_hidden(sync):
    model = nn.Linear(20, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        with spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF):
            model(torch.randn(4, 20)).sum().backward()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
