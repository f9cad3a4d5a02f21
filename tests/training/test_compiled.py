"""One rank: torch.compile of what calls ``backward()`` and ``step()``."""

import pytest
import torch
from torch import nn
from training.one_rank import batches, distribute, small_model, weights

import spardl.torch as spt

# The compiler's own code warns of itself.
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore:`torch.jit")]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("clip", [False, True])
def test_a_compiled_training_step_is_plain_torch(clip):
    def run(network, synchronize, compiled):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
        handle = distribute(optimizer, network, spt.SparDL(density=1.0)) if synchronize else None

        def step(inputs):
            optimizer.zero_grad()
            network(inputs).square().sum().backward()
            if clip and handle is not None:
                handle.synchronize()
            if clip:
                nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()

        if compiled:
            step = torch.compile(step, backend="eager")
        for inputs in batches(4):
            step(inputs)
        return weights(network), handle

    expected, _ = run(small_model(), synchronize=False, compiled=False)
    got, handle = run(small_model(), synchronize=True, compiled=True)
    torch.testing.assert_close(got, expected)
    assert handle.stats.steps == 4


def test_a_compiled_step_of_rna():
    model, plain = small_model(), small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def step(inputs):
        optimizer.zero_grad()
        model(inputs).square().sum().backward()
        optimizer.step()

    with distribute(optimizer, model, spt.RNA(policy=spt.All())) as handle:
        for inputs in batches(3):
            step(inputs)
    assert handle.stats.steps == 3
    reference = torch.optim.SGD(plain.parameters(), lr=0.1)
    for inputs in batches(3):
        reference.zero_grad()
        plain(inputs).square().sum().backward()
        reference.step()
    torch.testing.assert_close(weights(model), weights(plain))


def test_a_compiled_optimizer_step():
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = distribute(optimizer, model, spt.SparDL(density=1.0))
    step = torch.compile(optimizer.step, backend="eager")
    plain = small_model()
    for inputs in batches(3):
        for network in (model, plain):
            network.zero_grad()
            network(inputs).square().sum().backward()
        step()
        with torch.no_grad():
            for p in plain.parameters():
                p.sub_(p.grad, alpha=0.1)
    torch.testing.assert_close(weights(model), weights(plain))
    assert handle.stats.steps == 3
