"""What of a model and its optimizer is averaged, and what stays: pack, average in a group, unpack."""

import copy

import pytest
import torch
from mpi4py import MPI
from torch import nn
from training.one_rank import batches
from training.system_world import average, make_replicas, meet, train, travelling

import spardl.torch as spt
from spardl.torch.travelling import saved_buffers, union_of


class Zoo(nn.Module):
    """Parameters and buffers of all kinds. What is not trained has a value of its own on every rank."""

    def __init__(self, number=0):
        super().__init__()
        torch.manual_seed(number)
        self.image = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
        self.halves = nn.Linear(5, 3).half()
        self.brain = nn.Linear(5, 3).bfloat16()
        self.norm = nn.BatchNorm1d(6)
        self.scale = nn.Parameter(torch.randn(()))
        self.frozen = nn.Parameter(torch.randn(7), requires_grad=False)
        self.embedding, self.tied = nn.Embedding(9, 2), nn.Linear(2, 9, bias=False)
        self.tied.weight = self.embedding.weight
        self.transposed = nn.Parameter(torch.randn(4, 6).t())
        self.register_buffer("mask", torch.tensor([bool(number % 2), False]))
        self.register_buffer("small", torch.tensor([[number, 7 - number]], dtype=torch.int8))
        self.register_buffer("large", torch.tensor(2**53 + 1 + number))
        self.register_buffer("wave", torch.randn(3, dtype=torch.complex64))
        self.register_buffer("cache", torch.randn(5), persistent=False)
        for tensor in (*self.norm.parameters(), self.norm.running_mean, self.norm.running_var):
            nn.init.uniform_(tensor)
        self.norm.num_batches_tracked.fill_(10 * number)


def state_of(model):
    return copy.deepcopy({**dict(model.named_parameters()), **dict(model.named_buffers())})


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def zoos(count=3):
    models = [Zoo(number) for number in range(count)]
    return models, [travelling(model) for model in models]


# -- weights and buffers -----------------------------------------------------------------------------------------------


def test_what_is_packed_is_unpacked_bit_for_bit():
    models, (traveller, *_) = zoos()
    before = state_of(models[0])
    offer = traveller.pack()
    packed = offer._replace(values=offer.values.copy())
    with torch.no_grad():
        for name, tensor in [*models[0].named_parameters(), *saved_buffers(models[0]).items()]:
            if tensor.requires_grad or name in saved_buffers(models[0]):
                tensor.fill_(3)
    assert not torch.equal(models[0].halves.weight, before["halves.weight"])
    traveller.unpack(packed)
    assert_equal(state_of(models[0]), before)


def test_alone_in_a_group_nothing_changes():
    (model,), travellers = zoos(1)
    before = state_of(model)
    average(travellers)
    assert_equal(state_of(model), before)


def test_a_tied_weight_travels_once():
    models, travellers = zoos()
    names = [name for name, p in models[0].named_parameters() if p.requires_grad]
    assert "embedding.weight" in names
    assert "tied.weight" not in names
    values = sum(models[0].get_parameter(name).numel() for name in names)
    assert travellers[0].pack().state == values + 2 * 6 + 2 * 3  # running mean and variance, and complex numbers
    average(travellers)
    assert models[0].tied.weight is models[0].embedding.weight


@pytest.mark.parametrize("weights", [None, [0.5, 0.25, 0.25]])
def test_trained_weights_and_float_buffers_are_averaged(weights):
    models, travellers = zoos()
    before = [state_of(model) for model in models]
    average(travellers, weights)
    moving = [name for name, p in models[0].named_parameters() if p.requires_grad]
    for name in [*moving, "norm.running_mean", "norm.running_var", "wave"]:
        owned = torch.stack([state[name].to(torch.promote_types(state[name].dtype, torch.float32)) for state in before])
        shares = torch.tensor(weights or [1 / 3] * 3).view(-1, *[1] * (owned.dim() - 1))
        expected = (owned * shares).sum(0).to(before[0][name].dtype)
        for model in models:
            torch.testing.assert_close(state_of(model)[name], expected)
            assert torch.equal(state_of(model)[name], state_of(models[0])[name])
        assert not torch.equal(state_of(models[0])[name], before[0][name])


def test_of_integers_the_largest_is_taken():
    models, travellers = zoos()
    average(travellers)
    for model in models:
        assert model.norm.num_batches_tracked == 20
        assert model.mask.tolist() == [True, False]
        assert model.small.tolist() == [[2, 7]]
        assert model.large == 2**53 + 3  # which no float64 is
        assert (model.mask.dtype, model.small.dtype) == (torch.bool, torch.int8)


def test_what_is_not_saved_and_what_is_not_trained_stays():
    models, travellers = zoos()
    before = [state_of(model) for model in models]
    average(travellers)
    for model, state in zip(models, before, strict=True):
        for name in ("cache", "frozen"):
            assert torch.equal(state_of(model)[name], state[name])
        assert not torch.equal(model.scale, state["scale"])


def test_a_buffer_that_was_replaced_is_found():
    """Another tensor in its place, as code that computes statistics anew leaves it."""
    models, travellers = zoos(2)
    average(travellers)
    for number, model in enumerate(models):
        model.norm.running_mean = torch.full((6,), 2.0 + 4 * number)
        model.norm.num_batches_tracked = torch.tensor(100 + number)
    average(travellers)
    for model in models:
        assert model.norm.running_mean.tolist() == [4.0] * 6
        assert model.norm.num_batches_tracked == 101


def test_weights_of_64_bits_are_not_rounded():
    models = [nn.Linear(3, 2).double() for _ in range(2)]
    expected = sum(model.weight.detach() for model in models) / 2
    average([travelling(model) for model in models])
    assert torch.equal(models[0].weight, expected)
    assert travelling(models[0]).pack().values.dtype == "float64"


def test_models_with_buffers_of_all_kinds_can_be_saved():
    """One rank's average is its own model."""
    model = Zoo(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with spt.distribute(optimizer, model, sync=spt.PartialReduce(), comm=MPI.COMM_SELF) as handle:
        average_of_all = handle.gathered_state_dict()["average"]
    assert_equal(average_of_all["buffers"], saved_buffers(model))
    assert_equal(average_of_all["weights"], {name: p for name, p in model.named_parameters() if p.requires_grad})


# -- the optimizer's state ---------------------------------------------------------------------------------------------


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01, amsgrad=True)


def momentum_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def nadam(parameters):
    return torch.optim.NAdam(parameters, lr=0.01)


def small_zoo():
    """With a parameter that is a single number, and others."""
    torch.manual_seed(0)
    return nn.ParameterDict({"matrix": torch.randn(4, 3), "number": torch.randn(()), "one": torch.randn(1)})


def trained_for(steps, make_optimizer, seed, leave_out=()):
    """Model, optimizer and traveller after so many steps with random gradients; some parameters get none."""
    model = small_zoo()
    optimizer = make_optimizer(model.parameters())
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for name, parameter in model.items():
            parameter.grad = None if name in leave_out else torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return model, optimizer, travelling(model, optimizer)


def several(make_optimizer, steps=(3, 5, 4)):
    """Three ranks that have made different numbers of steps."""
    models, optimizers, travellers = zip(
        *(trained_for(count, make_optimizer, seed) for seed, count in enumerate(steps)), strict=True
    )
    return models, optimizers, travellers


def owned(optimizer):
    """A copy of its state, by parameter's number."""
    return copy.deepcopy(optimizer.state_dict()["state"])


def assert_states_equal(one, other):
    assert one.keys() == other.keys()
    for number, state in one.items():
        assert state.keys() == other[number].keys()
        for name, value in state.items():
            assert torch.equal(value, other[number][name]), (number, name)


MOMENTS = {
    momentum_sgd: ["momentum_buffer"],
    adam: ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
    nadam: ["exp_avg", "exp_avg_sq"],
}
COUNTERS = {momentum_sgd: [], adam: ["step"], nadam: ["mu_product", "step"]}


@pytest.mark.parametrize("make_optimizer", MOMENTS)
def test_moments_are_averaged_and_counters_are_the_largest(make_optimizer):
    _, optimizers, travellers = several(make_optimizer)
    assert travellers[0].layout == ",".join(MOMENTS[make_optimizer]) + ";" + ",".join(COUNTERS[make_optimizer])
    before = [owned(optimizer) for optimizer in optimizers]
    average(travellers)
    for optimizer in optimizers:
        for number, state in owned(optimizer).items():
            for name in MOMENTS[make_optimizer]:
                expected = torch.stack([each[number][name] for each in before]).mean(0)
                torch.testing.assert_close(state[name], expected)
                assert not torch.equal(state[name], before[0][number][name])
            for name in COUNTERS[make_optimizer]:
                assert state[name] == max(each[number][name] for each in before)
    assert_states_equal(owned(optimizers[0]), owned(optimizers[1]))


@pytest.mark.parametrize("make_optimizer", MOMENTS)
def test_states_are_written_in_place(make_optimizer):
    """Others may hold the tensors: a compiled step does."""
    _, (optimizer, *_), travellers = several(make_optimizer)
    held = [value for state in optimizer.state.values() for value in state.values()]
    average(travellers)
    for kept, value in zip(held, (v for state in optimizer.state.values() for v in state.values()), strict=True):
        assert kept is value


@pytest.mark.parametrize("make_optimizer", MOMENTS)
@pytest.mark.parametrize("freshest", [0, 1, 2])
def test_members_adopt_the_state_of_the_freshest(make_optimizer, freshest):
    """Its counters, too, also where another has counted more. The freshest keep theirs: here rank 2 is as fresh."""
    models, optimizers, travellers = several(make_optimizer)
    before = [owned(optimizer) for optimizer in optimizers]
    average(travellers, adopts=True, freshest=freshest, keep={freshest, 2})
    for rank, optimizer in enumerate(optimizers):
        assert_states_equal(owned(optimizer), before[2 if rank == 2 else freshest])
    assert torch.equal(models[0]["matrix"], models[2]["matrix"])  # weights are averaged all the same


@pytest.mark.parametrize("make_optimizer", MOMENTS)
def test_a_local_state_stays(make_optimizer):
    models, optimizers, _ = several(make_optimizer)
    before = [owned(optimizer) for optimizer in optimizers]
    travellers = [travelling(*pair, with_state=False) for pair in zip(models, optimizers, strict=True)]
    assert travellers[0].layout == ""
    assert travellers[0].pack().state == len(travellers[0].pack().values)
    average(travellers)
    for optimizer, state in zip(optimizers, before, strict=True):
        assert_states_equal(owned(optimizer), state)
    assert torch.equal(models[0]["matrix"], models[1]["matrix"])


@pytest.mark.parametrize("make_optimizer", MOMENTS)
@pytest.mark.parametrize("adopts", [False, True])
def test_an_absent_state_is_zero_and_is_created(make_optimizer, adopts):
    """Rank 0 had no gradient for a parameter yet; steps go on with what is created."""
    _, first, one = trained_for(3, make_optimizer, 0, leave_out=("matrix",))
    _, second, other = trained_for(4, make_optimizer, 1)
    has = owned(second)
    assert 0 not in owned(first)
    average([one, other], adopts=adopts, freshest=1, keep={1} if adopts else ())
    for name in MOMENTS[make_optimizer]:
        mean = has[0][name] if adopts else has[0][name] / 2
        torch.testing.assert_close(owned(first)[0][name], mean)
        torch.testing.assert_close(owned(second)[0][name], mean)
    for name in COUNTERS[make_optimizer]:
        kept = owned(second)[0][name]
        created = owned(first)[0][name]
        assert created == has[0][name]
        assert (created.dtype, created.shape) == (kept.dtype, kept.shape)
    assert owned(first)[0].keys() == has[0].keys()
    first.step()
    assert 0 in owned(first)


def test_a_state_that_nobody_has_is_not_created():
    pairs = [trained_for(2, adam, seed, leave_out=("matrix",)) for seed in range(2)]
    average([traveller for *_, traveller in pairs])
    for _, optimizer, _ in pairs:
        assert owned(optimizer).keys() == {1, 2}


def test_moments_that_are_zero_have_been_counted():
    """All gradients were zero on one rank, and the other has had none."""
    (_, first, one), (model, second, other) = (trained_for(0, adam, seed) for seed in range(2))
    for _ in range(5):
        for parameter in model.values():
            parameter.grad = torch.zeros_like(parameter)
        second.step()
    average([one, other], layout=union_of([one.layout, other.layout]))
    assert [state["step"] for state in owned(first).values()] == [5, 5, 5]


def test_counters_may_be_plain_numbers():
    """As some optimizers have them."""
    _, optimizers, travellers = several(adam)
    for optimizer in optimizers:
        for state in optimizer.state.values():
            state["step"] = int(state["step"])
    average(travellers)
    for optimizer in optimizers:
        for state in optimizer.state.values():
            assert state["step"] == 5
            assert type(state["step"]) is int


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_rank_that_has_made_no_step_gets_a_state_from_the_others(lacking):
    """When all meet in the end: it takes part with zeros, or adopts; those who are as fresh as one another do not."""

    def model():
        torch.manual_seed(0)
        return nn.Linear(8, 4)

    for state in ("average", "adopt"):
        sync = spt.PartialReduce(group=2, weights="constant", optimizer_state=state)
        replicas = make_replicas(3, sync, model, momentum_sgd)
        data = [batches(0 if rank == lacking else 3, seed=rank + 1) for rank in range(3)]
        train(replicas, data, seed=2)
        before = [owned(replica.optimizer) for replica in replicas]
        assert not before[lacking]
        meet(replicas)
        for number in range(2):
            had = [each[number]["momentum_buffer"] if each else None for each in before]
            first, second = (buffer for buffer in had if buffer is not None)
            for replica, kept in zip(replicas, had, strict=True):
                adopted = first if kept is None else kept
                expected = adopted if state == "adopt" else (first + second) / 3
                torch.testing.assert_close(owned(replica.optimizer)[number]["momentum_buffer"], expected)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (torch.zeros(2, 3), r"tensor of shape \[2, 3\]"),
        (torch.zeros(4, 3, dtype=torch.int8), r"tensor of shape \[4, 3\]"),
        (torch.zeros(0), r"tensor of shape \[0\]"),
        ([torch.zeros(4, 3)], "list"),
        ("text", "str"),
        (True, "bool"),
    ],
)
def test_a_state_that_has_no_mean_is_refused_by_name(value, what):
    model, optimizer, traveller = trained_for(2, momentum_sgd, 0)
    optimizer.state[model["matrix"]]["history"] = value
    words = f"PartialReduce: this optimizer's state 'history' is a {what}, which has no mean; use optimizer_state='loc"
    with pytest.raises(TypeError, match=words):
        traveller.pack()
    travelling(model, optimizer, with_state=False).pack()


def test_optimizers_whose_state_has_no_mean():
    model = small_zoo()
    optimizer = torch.optim.Adafactor(model.parameters())
    for parameter in model.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with pytest.raises(TypeError, match="state 'row_var' is a tensor of shape"):
        _ = travelling(model, optimizer).layout


def test_none_in_a_state_is_nothing():
    model, optimizer, traveller = trained_for(2, momentum_sgd, 0)
    optimizer.state[model["matrix"]]["history"] = None
    assert traveller.layout == "momentum_buffer;"
    assert len(traveller.pack().values) == 2 * (12 + 1 + 1)
