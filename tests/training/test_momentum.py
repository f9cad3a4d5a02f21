"""One rank: momentum correction, local clipping and warm-up."""

import numpy as np
import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, train, weights

import spardl.torch as spt


@pytest.mark.parametrize(("exclude", "masking"), [((), False), (["*.bias"], False), (["*"], True)])
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_correction_with_everything_sent_is_momentum(nesterov, exclude, masking):
    plain, model = small_model(dtype=torch.float64), small_model(dtype=torch.float64)
    options = {"lr": 0.01, "weight_decay": 0.1}
    reference = sgd(plain, momentum=0.9, nesterov=nesterov, **options)
    optimizer = sgd(model, **options)
    sync = spt.SparDL(density=1.0, momentum=0.9, nesterov=nesterov, momentum_masking=masking)
    distribute(optimizer, model, sync, exclude=exclude)
    for network, optim in ((plain, reference), (model, optimizer)):
        for inputs in batches(8, dtype=torch.float64):
            optim.zero_grad()
            backward(network, inputs)
            optim.step()
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-9, atol=1e-12)


def test_momentum_correction_step_by_step():
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = sgd(model, lr=1.0)
    handle = distribute(optimizer, model, spt.SparDL(density=0.5, momentum=0.5))
    velocity, owed = np.zeros(4), np.zeros(4)
    for grad in ([8.0, 4.0, 2.0, 1.0], [1.0, 1.0, 4.0, 1.0], [0.0, 0.0, 1.0, 8.0]):
        velocity = 0.5 * velocity + grad
        owed += velocity
        sent = np.argsort(-np.abs(owed), kind="stable")[:2]
        result = np.zeros(4)
        result[sent] = owed[sent]
        owed[sent] = velocity[sent] = 0
        model.weight.grad = torch.tensor([grad])
        handle.synchronize()
        np.testing.assert_array_equal(model.weight.grad[0].numpy(), result)
        np.testing.assert_array_equal(handle.residuals["weight"][0].numpy(), owed)
        optimizer.step()


def test_momentum_in_both_places_is_refused():
    model = small_model()
    for optimizer in (sgd(model, momentum=0.9), torch.optim.Adam(model.parameters())):
        with pytest.raises(ValueError, match=r"so the optimizer must have none; got (SGD|Adam) with momentum"):
            distribute(optimizer, model, spt.SparDL(density=0.1, momentum=0.9))


def test_local_clip_limits_what_is_handed_in():
    model = nn.Linear(3, 1, bias=False)
    optimizer = sgd(model)
    handle = distribute(optimizer, model, spt.SparDL(density=1.0, local_clip=1.0))
    for grad, expected in (([3.0, 4.0, 0.0], [0.6, 0.8, 0.0]), ([0.3, 0.4, 0.0], [0.3, 0.4, 0.0])):
        model.weight.grad = torch.tensor([grad])
        handle.synchronize()
        torch.testing.assert_close(model.weight.grad, torch.tensor([expected]))
        optimizer.step()


def test_warmup_follows_the_steps_and_survives_a_checkpoint():
    sync = spt.SparDL(density=spt.Warmup(0.05, steps=4, start=0.8, stages=2))
    model = small_model()
    optimizer = sgd(model)
    handle = distribute(optimizer, model, sync)
    sent = []
    for _ in range(6):
        train(model, optimizer, 1)
        sent.append(sum(int((p.grad != 0).sum()) for p in model.parameters()))
    assert sent == [170, 170, 42, 42, 11, 11]
    state = handle.state_dict()
    handle.remove()
    distribute(optimizer, model, sync).load_state_dict(state)
    train(model, optimizer, 1)
    assert sum(int((p.grad != 0).sum()) for p in model.parameters()) == 11


def test_weight_decay_acts_everywhere_at_once():
    model = nn.Linear(100, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = sgd(model, lr=0.1, weight_decay=0.5)
    distribute(optimizer, model, spt.SparDL(density=0.01))
    model.weight.grad = torch.zeros(1, 100)
    optimizer.step()
    torch.testing.assert_close(model.weight, torch.full((1, 100), 0.95))
