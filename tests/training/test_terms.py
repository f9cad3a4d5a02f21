"""A round's numbers for one step: they reach every kind of number, and go again."""

import torch
from torch import nn

from spardl.torch import trees
from spardl.torch.start import load_in_place
from spardl.torch.terms import Terms


def parameters():
    return [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]


def adam(lr, **options):
    return torch.optim.Adam([{"params": [p]} for p in parameters()], lr=lr, **options)


def test_numbers_and_tuples_of_another_rank():
    here, there = adam(0.1), adam(0.2, betas=(0.5, 0.6), eps=1e-3)
    with Terms(here).on(Terms(there).tell()):
        for group in here.param_groups:
            assert (group["lr"], group["betas"], group["eps"]) == (0.2, (0.5, 0.6), 1e-3)
            assert group["amsgrad"] is False
    assert all((group["lr"], group["betas"], group["eps"]) == (0.1, (0.9, 0.999), 1e-8) for group in here.param_groups)


def test_a_tensor_is_filled_and_stays_the_same_object():
    """Both groups have the one tensor: scaling it for each would scale it twice."""
    lr = torch.tensor(0.1)
    here, there = adam(lr), adam(torch.tensor(0.4))
    bits = lr.item()
    with Terms(here).on(Terms(there).tell(), 0.5):
        assert all(group["lr"] is lr for group in here.param_groups)
        assert lr.item() == torch.tensor(0.2).item()
    assert all(group["lr"] is lr for group in here.param_groups)
    assert lr.item() == bits


def test_tensors_in_tuples():
    betas = (torch.tensor(0.9), torch.tensor(0.999))
    here, there = adam(torch.tensor(0.1), betas=betas), adam(0.1, betas=(0.5, 0.75))
    with Terms(here).on(Terms(there).tell()):
        assert here.param_groups[0]["betas"][0] is betas[0]
        assert [beta.item() for beta in betas] == [0.5, 0.75]
    assert all(one is other for one, other in zip(here.param_groups[0]["betas"], betas, strict=True))
    assert [beta.item() for beta in betas] == [torch.tensor(0.9).item(), torch.tensor(0.999).item()]


def test_a_scheduler_goes_on_from_its_own_rate():
    """It changes the tensor in place, on each rank at its own pace; the round's rate is the other rank's."""
    lr = torch.tensor(0.4)
    here, there = adam(lr), adam(0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(here, 0.5)
    with Terms(here).on(Terms(there).tell()):
        here.step()
    scheduler.step()
    assert lr.item() == torch.tensor(0.2).item()


def test_loading_another_ranks_state_keeps_the_tensor():
    lr = torch.tensor(0.1)
    here, there = adam(lr), adam(torch.tensor(0.4))
    load_in_place(here, trees.from_bytes(trees.to_bytes(there.state_dict())))
    assert all(group["lr"] is lr for group in here.param_groups)
    assert lr.item() == torch.tensor(0.4).item()


def test_names_that_only_the_other_rank_has_go_again():
    here, there = adam(0.1), adam(0.1)
    torch.optim.lr_scheduler.ExponentialLR(there, 0.5)
    names = set(here.param_groups[0])
    with Terms(here).on(Terms(there).tell()):
        assert here.param_groups[0]["initial_lr"] == 0.1
    assert set(here.param_groups[0]) == names


class Counting(torch.optim.Optimizer):
    """Keeps a counter among its options, as some optimizers without schedule do."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "k": 0})

    def step(self):
        for group in self.param_groups:
            group["k"] += 1


def test_what_the_step_counts_itself_goes_on_from_round_to_round():
    optimizer = Counting(parameters())
    terms = Terms(optimizer)
    told = terms.tell()  # by a rank that has applied no round yet; three rounds come with it
    for round in range(3):
        with terms.on(told, 0.25):
            optimizer.step()
        assert optimizer.param_groups[0] | {"params": None} == {"params": None, "lr": 0.1, "k": round + 1}
