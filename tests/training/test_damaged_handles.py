"""A handle's state that is damaged is a ValueError, and leaves the handle as it was."""

import pytest
import torch
from damaged_state import assert_refused, damaged, frozen
from mpi4py import MPI
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, train

import spardl.torch as spt


class Embedded(nn.Module):
    """Dense layers, and rows of an embedding."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(6, 8, sparse=True)
        self.dense = small_model()

    def forward(self, inputs):
        return self.dense(inputs + self.rows(torch.arange(len(inputs))))


def trained(sync, steps, model=small_model, **options):
    torch.manual_seed(3)
    model = model()
    optimizer = sgd(model, weight_decay=0.01 if isinstance(model, nn.Sequential) else 0)  # rows cannot decay
    handle = distribute(optimizer, model, sync, bucket_mb=0.0006, **options)
    train(model, optimizer, steps)
    return handle


def harmless_in(state, path=()):
    """Places where one damage makes another sound state."""
    kept = [((*path, "width", 3), "replaced by None")]  # as before the first reduce
    if path[-1:] == ("config",):
        kept += [((*path, name), "replaced by 'damaged'") for name in state]  # settings may have changed
    if isinstance(state, dict):
        for key, value in state.items():
            kept += harmless_in(value, (*path, key))
    elif isinstance(state, list):
        for place, value in enumerate(state):
            kept += harmless_in(value, (*path, place))
    return kept


@pytest.mark.parametrize(
    ("sync", "model", "gathered"),
    [
        (spt.SparDL(density=0.1, momentum=0.9), small_model, True),
        (spt.SparDL(density=0.1), Embedded, False),
        (spt.Dense(), Embedded, False),
    ],
)
def test_every_damage_of_a_handles_state(sync, model, gathered):
    good, other = trained(sync, 4, model), trained(sync, 2, model)
    look = (lambda: other.gathered_state_dict()) if gathered else other.state_dict
    state = good.gathered_state_dict() if gathered else good.state_dict()
    assert assert_refused(other.load_state_dict, look, state, harmless_in(state)) > 100


def test_a_refused_state_leaves_a_handle_that_has_no_buckets_yet():
    state = trained(spt.SparDL(density=0.1), 3).state_dict()
    state["buckets"][0]["reducer"]["thresholds"] += torch.nan
    model = small_model()
    optimizer = sgd(model)
    fresh = distribute(optimizer, model)
    with pytest.raises(ValueError, match=r"thresholds has .* values that are not finite"):
        fresh.load_state_dict(state)
    assert fresh.state_dict()["buckets"] == []
    train(model, optimizer, 2)


def test_a_velocity_that_is_not_finite_is_named():
    handle = trained(spt.SparDL(density=0.1, momentum=0.9), 2)
    state = handle.state_dict()
    state["buckets"][0]["velocity"][3] = torch.nan
    with pytest.raises(ValueError, match=r"the velocity of .* has 1 values that are not finite"):
        handle.load_state_dict(state)


def test_every_damage_of_states_that_are_joined():
    state = trained(spt.SparDL(density=0.1), 2).state_dict()
    for path, what, wrong in damaged(state):
        try:
            joined = spt.join_states([wrong])
        except ValueError:
            continue
        assert path[0] == "buckets", (path, what)  # values and what reducers learnt are looked at when they are loaded
        assert frozen(joined["states"]) == frozen([wrong])


def test_every_damage_of_rnas_state():
    sync = spt.RNA(reduce=spt.SparDL(density=0.1))
    states = []
    for steps in (3, 1):
        model = small_model()
        optimizer = sgd(model)
        handle = spt.distribute(optimizer, model, sync=sync, comm=MPI.COMM_SELF)
        train(model, optimizer, steps)
        handle.settle()
        states.append(handle.state_dict())
        if steps == 3:
            handle.finish()
    try:
        assert assert_refused(handle.load_state_dict, handle.state_dict, states[0]) > 80
    finally:
        handle.finish()


def test_every_damage_of_the_ddp_hooks_state():
    model = small_model()
    state = {"steps": 4, "residuals": {name: torch.ones(p.numel()) for name, p in model.named_parameters()}}
    hook = spt.ddp_hook(spt.SparDL(density=0.1), MPI.COMM_SELF)
    nothing_owed = [(("residuals", name), "deleted") for name in state["residuals"]]
    nothing_owed.append((("residuals",), "replaced by {}"))
    as_rows = [(("residuals", name), "of another shape") for name in state["residuals"]]

    def look():
        return hook.state_dict(model)

    assert assert_refused(lambda wrong: hook.load_state_dict(model, wrong), look, state, nothing_owed + as_rows) > 50


def test_the_first_gradient_is_not_blamed_for_a_residual():
    """Backward is run only to show that the handle works on after a refusal."""
    handle = trained(spt.SparDL(density=0.1), 2)
    state = handle.state_dict()
    state["buckets"][0]["residual"][0] = torch.inf
    with pytest.raises(ValueError, match=r"the residual of .* not finite"):
        handle.load_state_dict(state)
    handle._optimizer.zero_grad()
    backward(handle._model, batches(1)[0])
    handle._optimizer.step()
