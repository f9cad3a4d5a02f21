"""One step for one round, worked out by hand: what moves, how far, and that the optimizer's numbers come back."""

import numpy as np
import pytest
import torch
from torch import nn

from spardl.protocols.rna.parts import Sum
from spardl.sparse import SparseVector
from spardl.torch.round_step import RoundStep
from spardl.torch.terms import Terms
from spardl.torch.vector import ModelVector

RANKS = 4


class Setting:
    """A parameter [1, −2] and rounds of four ranks that are applied to it."""

    def __init__(self, make, *, linear_scaling=True, **options):
        self.w = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
        self.optimizer = make([self.w], **options)
        self.terms = Terms(self.optimizer)
        vector = ModelVector({"w": self.w})
        self._step = RoundStep(
            self.optimizer, lambda: self.optimizer.step(), vector, self.terms, linear_scaling=linear_scaling
        )

    def apply(self, total, contributors, terms=None):
        result = Sum(SparseVector.trusted(None, np.array(total, float), 2), contributors)
        return self._step.apply(result, self.terms.tell() if terms is None else terms, RANKS)

    def is_at(self, *expected, rtol=1e-12):
        np.testing.assert_allclose(self.w.detach().numpy(), expected, rtol=rtol)
        return True

    @property
    def group(self):
        return self.optimizer.param_groups[0]


def test_sgd_with_momentum_and_decay():
    setting = Setting(torch.optim.SGD, lr=0.1, momentum=0.5, weight_decay=0.1)
    # One of four: g + 0.1·w = [4.1, 7.8] is the momentum, too; w moves by 0.1 · 1/4 of it.
    assert setting.apply([4, 8], 1)
    assert setting.is_at(1 - 0.1025, -2 - 0.195)
    # Two of four, mean [1, 2]: with decay [1.08975, 1.7805], with momentum [3.13975, 5.6805]; times 0.1 · 2/4.
    assert setting.apply([2, 4], 2)
    assert setting.is_at(0.7405125, -2.479025)
    np.testing.assert_allclose(setting.optimizer.state[setting.w]["momentum_buffer"], [3.13975, 5.6805], rtol=1e-12)
    assert setting.group["lr"] == 0.1


@pytest.mark.parametrize("contributors", [1, 2, 3, 4])
def test_adam_moves_in_proportion_to_contributors(contributors):
    setting = Setting(torch.optim.Adam, lr=0.01)
    setting.apply([5.0, -3.0], contributors)
    # Its first step is the learning rate long, whatever the gradient.
    share = contributors / RANKS
    assert setting.is_at(1 - 0.01 * share, -2 + 0.01 * share, rtol=1e-9)


def test_decoupled_decay_is_in_proportion_too():
    setting = Setting(torch.optim.AdamW, lr=0.1, weight_decay=0.5)
    setting.apply([5.0, -3.0], 1)  # first w · (1 − 0.1/4 · 0.5), then 0.1/4 against the gradient
    assert setting.is_at(0.9875 - 0.025, -1.975 + 0.025, rtol=1e-8)


def test_without_linear_scaling_the_learning_rate_is_as_it_is():
    setting = Setting(torch.optim.SGD, linear_scaling=False, lr=0.1)
    setting.apply([6, 9], 3)  # the mean is [2, 3]
    assert setting.is_at(0.8, -2.3)


def test_with_all_contributors_it_is_the_mean_over_ranks():
    setting = Setting(torch.optim.SGD, lr=0.1)
    setting.apply([4, 8], RANKS)
    assert setting.is_at(0.9, -2.2)


@pytest.mark.parametrize("make", [torch.optim.Adam, lambda p, lr: torch.optim.SGD(p, lr, 0.9, weight_decay=0.1)])
def test_a_round_without_contributors_moves_nothing(make):
    setting = Setting(make, lr=0.1)
    setting.apply([4, 8], 2)
    state = {name: value.clone() for name, value in setting.optimizer.state[setting.w].items()}
    before = setting.w.detach().clone()
    assert not setting.apply([0, 0], 0)
    assert torch.equal(setting.w, before)
    assert all(torch.equal(value, state[name]) for name, value in setting.optimizer.state[setting.w].items())


def test_sgd_applies_what_was_summed_over_all_ranks_nothing_twice():
    """Σ lr · share · mean = lr · Σ sums / P, whoever contributed."""
    setting = Setting(torch.optim.SGD, lr=1.0)
    for total, contributors in (([12, 24], 1), ([36, -12], 3), ([-24, 12], 2), ([12, 0], 4)):
        setting.apply(total, contributors)
    np.testing.assert_array_equal(setting.w.detach(), [1 - 36 / 4, -2 - 24 / 4])


def test_a_learning_rate_of_zero_stays_zero():
    setting = Setting(torch.optim.SGD, lr=0.0)
    setting.apply([4, 8], 1)
    assert setting.is_at(1, -2)
    assert setting.group["lr"] == 0


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_numbers_come_back_also_if_the_step_fails(lr):
    setting = Setting(torch.optim.SGD, lr=lr, momentum=0.9)
    bits = float(lr)
    seen = []

    def fail():
        seen.append(float(setting.group["lr"]))
        raise KeyError("no such thing")

    setting.optimizer.step = fail
    with pytest.raises(KeyError):
        setting.apply([4, 8], 1)
    assert seen == [float(torch.tensor(0.1) / 4) if isinstance(lr, torch.Tensor) else 0.025]
    assert setting.group["lr"] is lr
    assert (float(lr), setting.group["momentum"]) == (bits, 0.9)


def test_parameters_added_since_are_left_alone():
    setting = Setting(torch.optim.SGD, lr=0.1)
    terms = setting.terms.tell()
    late = nn.Parameter(torch.ones(3))
    late.grad = torch.full((3,), 7.0)
    setting.optimizer.add_param_group({"params": [late], "lr": 0.3})
    setting.apply([4, 8], 4, terms)
    assert setting.is_at(0.9, -2.2)
    assert torch.equal(late, torch.ones(3))
    assert torch.equal(late.grad, torch.full((3,), 7.0))
