"""One rank: optimizers and models that wrap others."""

import copy

import pytest
import torch
from torch import nn
from training.one_rank import backward, batches, distribute, sgd, small_model, train, weights

import spardl.torch as spt


class Sam(torch.optim.Optimizer):
    """As published: two passes per step, and ``step()`` itself is never called."""

    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, {"rho": rho, **kwargs})
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.clone()
                p.add_(p.grad, alpha=group["rho"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["old"])
        self.base_optimizer.step()
        self.zero_grad()

    def step(self):
        raise NotImplementedError


class AcceleratedOptimizer(torch.optim.Optimizer):
    """Like accelerate's: never calls its base class's __init__, has properties only, puts a step on for a scaler."""

    __module__ = "accelerate.optimizer"

    def __init__(self, optimizer, device_placement=True, scaler=None):
        self.optimizer, self.scaler, self.device_placement = optimizer, scaler, device_placement
        self._is_overflow = self._accelerate_step_called = False
        self._optimizer_original_step_method = original = self.optimizer.step

        def patched_step(*args, **kwargs):
            self._accelerate_step_called = True
            return original(*args, **kwargs)

        self._optimizer_patched_step_method = patched_step

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)

    def state_dict(self):
        return self.optimizer.state_dict()

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        if self.scaler is None:
            self.optimizer.step(closure)
            return
        self.optimizer.step = self._optimizer_patched_step_method
        self.scaler.step(self.optimizer, closure)
        self.scaler.update()
        self._is_overflow, self._accelerate_step_called = not self._accelerate_step_called, False
        self.optimizer.step = self._optimizer_original_step_method


class Outer(torch.optim.Optimizer):
    """Passes its steps on."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.optimizer = inner
        self.param_groups = inner.param_groups

    def step(self):
        self.optimizer.step()


def train_sam(model, sam, steps=4):
    for inputs in batches(steps):
        backward(model, inputs)
        sam.first_step()
        backward(model, inputs)
        sam.second_step()


# -- optimizers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [AcceleratedOptimizer, Outer, lambda inner: Outer(AcceleratedOptimizer(inner))])
def test_the_wrapped_optimizer_is_taken(wrap):
    plain, model = small_model(), small_model()
    train(plain, sgd(plain, momentum=0.9), 4)
    inner = sgd(model, momentum=0.9)
    outer = wrap(inner)
    handle = distribute(outer, model, spt.SparDL(density=1.0))
    train(model, outer, 4)
    assert torch.equal(weights(model), weights(plain))
    assert handle.stats.steps == 4
    for again in (outer, inner):
        with pytest.raises(ValueError, match=r"this optimizer is distributed already"):
            distribute(again, model)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("wrap", [Outer, AcceleratedOptimizer])
def test_a_scaler_that_is_given_the_wrapper(wrap, told):
    plain, model = small_model(), small_model()
    train(plain, sgd(plain), 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    outer = wrap(sgd(model))
    handle = distribute(outer, model, spt.SparDL(density=1.0), scaler=scaler if told else None, overlap=False)

    def step(inputs):
        outer.zero_grad()
        scaler.scale(model(inputs).square().sum()).backward()
        scaler.step(outer)
        scaler.update()

    if told:
        for inputs in batches(3):
            step(inputs)
        assert torch.equal(weights(model), weights(plain))
        assert handle.stats.steps == 3
    else:
        with pytest.raises(RuntimeError, match=r"stepped by a GradScaler"):
            step(batches(1)[0])


def test_accelerates_optimizer_with_a_scaler_in_it():
    plain, model = small_model(), small_model()
    train(plain, sgd(plain), 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    prepared = AcceleratedOptimizer(sgd(model), scaler=scaler)
    handle = distribute(prepared, model, spt.SparDL(density=1.0), scaler=scaler)
    for number, inputs in enumerate([*batches(3), batches(1)[0] * torch.inf]):
        prepared.zero_grad()
        scaler.scale(model(inputs).square().sum()).backward()
        prepared.step()
        assert prepared._is_overflow == (number == 3)
    assert torch.equal(weights(model), weights(plain))
    assert (handle.stats.steps, handle.stats.skipped) == (3, 1)


@pytest.mark.parametrize("wrap", [AcceleratedOptimizer, Outer])
def test_rna_takes_the_wrapped_optimizer(wrap):
    model = small_model()
    outer = wrap(sgd(model))
    with distribute(outer, model, spt.RNA(policy=spt.All())) as handle:
        train(model, outer, 3)
    assert handle.stats.steps == 3


def test_sam_trains_where_gradients_are_sent_in_the_step():
    plain, model = small_model(), small_model()
    train_sam(plain, Sam(plain.parameters(), torch.optim.SGD, lr=0.1))
    sam = Sam(model.parameters(), torch.optim.SGD, lr=0.1)
    handle = distribute(sam, model, spt.SparDL(density=1.0), overlap=False)
    train_sam(model, sam)
    assert torch.equal(weights(model), weights(plain))
    assert handle.stats.steps == 4


def test_sams_second_pass_is_noticed_at_once_where_gradients_are_sent_when_they_come():
    model = small_model()
    sam = Sam(model.parameters(), torch.optim.SGD, lr=0.1)
    handle = distribute(sam, model)
    with pytest.raises(RuntimeError, match=r"came again before step\(\).*with handle.no_sync\(\)"):
        train_sam(model, sam)
    handle.remove()
    model.load_state_dict(small_model().state_dict())
    plain = small_model()
    train_sam(plain, Sam(plain.parameters(), torch.optim.SGD, lr=0.1))
    sam = Sam(model.parameters(), torch.optim.SGD, lr=0.1)
    sam.zero_grad()
    handle = distribute(sam, model, spt.SparDL(density=1.0))
    for inputs in batches(4):  # as the error says
        with handle.no_sync():
            backward(model, inputs)
        sam.first_step()
        backward(model, inputs)
        sam.second_step()
    assert torch.equal(weights(model), weights(plain))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_an_optimizer_that_is_never_stepped_is_noticed_though_nothing_is_sent_before_the_step(set_to_none):
    model = small_model()
    handle = distribute(sgd(model), model, overlap=False)
    another = sgd(model)
    with pytest.raises(RuntimeError, match=r"came 9 times anew, but step\(\) of the distributed optimizer never"):
        train(model, another, 20, set_to_none=set_to_none)
    assert handle.stats.steps == 0
    handle.remove()


def test_many_passes_that_add_up_are_no_such_thing():
    plain, model = small_model(), small_model()
    optimizers = sgd(plain), sgd(model)
    handle = distribute(optimizers[1], model, spt.SparDL(density=1.0), overlap=False)
    for network, optimizer in zip((plain, model), optimizers, strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            for inputs in batches(20):
                backward(network, inputs / 20)
            optimizer.step()
    assert torch.equal(weights(model), weights(plain))
    for _ in range(20):  # nor are those that are not for a step
        with handle.no_sync():
            optimizers[1].zero_grad()
            backward(model, batches(1)[0])


def test_wrappers_of_several_optimizers_and_with_state_of_their_own():
    model = small_model()
    parts = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]

    class Several(torch.optim.Optimizer):
        def __init__(self):
            super().__init__(model.parameters(), {})
            self.parts = parts

    with pytest.raises(ValueError, match=r"Several leaves its steps to \.parts\[0\] and \.parts\[1\]"):
        distribute(Several(), model)
    outer = Outer(sgd(model))
    outer.state[model[0].weight]["slow"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"Outer has state of its own already.*with the SGD first"):
        distribute(outer, model)

    class NoOptimizer:
        inner = None

    wrapper = NoOptimizer()
    wrapper.inner = sgd(model)
    with pytest.raises(TypeError, match=r"expected optimizer to be a Optimizer, got NoOptimizer; hand in its \.inner"):
        distribute(wrapper, model)


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def process_group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_models_that_reduce_gradients_themselves(process_group):
    model = small_model()
    parallel = nn.parallel.DistributedDataParallel(model)
    for wrapped, where in ((parallel, "the model is"), (nn.Sequential(parallel), "the part '0' of the model is")):
        with pytest.raises(TypeError, match=rf"{where} wrapped in DistributedDataParallel.*\.module.*ddp_hook\(sync\)"):
            distribute(sgd(wrapped), wrapped)

    class Sharded(nn.Linear):
        pass

    Sharded.__module__ = "torch.distributed.fsdp.fully_sharded_data_parallel"
    model = nn.Sequential(Sharded(2, 2))
    with pytest.raises(TypeError, match=r"the part '0' of the model is sharded by FSDP"):
        distribute(sgd(model), model)


def test_broadcast_keeps_what_a_wrapper_shares():
    from spardl.torch.start import load_in_place

    model = small_model()
    inner = sgd(model, momentum=0.9)
    outer = Outer(inner)
    train(model, outer, 1)
    saved = copy.deepcopy(inner.state_dict())
    saved["param_groups"][0]["lr"] = 0.5
    saved["state"][0]["momentum_buffer"].fill_(7)
    load_in_place(inner, saved)
    assert outer.param_groups is inner.param_groups
    assert outer.param_groups[0] is inner.param_groups[0]
    assert inner.param_groups[0]["lr"] == 0.5
    assert inner.state[model[0].weight]["momentum_buffer"].eq(7).all()
