"""Digests of weights, and who differs: in one process."""

import numpy as np
import pytest
import torch
import xxhash
from torch import nn
from training.one_rank import small_model

import spardl
from spardl.torch.digest import compare, difference, digests


def digests_of(model):
    return digests(model.parameters())


def test_a_digest_is_xxh3_of_the_elements_whatever_their_order_of_memory():
    weights = torch.randn(2, 3, 4, 4)
    expected = xxhash.xxh3_64_intdigest(weights.numpy().tobytes())
    others = [weights.to(memory_format=torch.channels_last), weights.expand(2, 3, 4, 4), weights.requires_grad_()]
    assert digests([weights.detach(), *others]).tolist() == [expected] * 4
    odd = [torch.zeros(()), torch.zeros(0), torch.zeros(3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.float16)]
    assert len(set(digests(odd).tolist())) == 4


def test_contiguous_weights_are_not_copied(monkeypatch):
    seen = []
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda data: seen.append(np.asarray(data).ctypes.data) or 0)
    model = small_model()
    digests_of(model)
    assert seen == [parameter.data_ptr() for parameter in model.parameters()]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_equal_weights_cost_one_exchange_of_8_bytes(ranks):
    mine = digests_of(small_model())
    run = spardl.runtime.loopback.Loopback([compare(ranks, me, mine) for me in range(ranks)])
    assert run.run() == [None] * ranks
    assert all(traffic.rounds == int(np.ceil(np.log2(ranks))) for traffic in run.traffic)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_one_flipped_bit_is_found_and_told_alike_on_all_ranks(ranks, seed):
    models = [small_model() for _ in range(ranks)]
    bits = models[-1][2].weight.data.view(torch.int32)
    bits[1, 3] ^= 1
    found = spardl.loopback([compare(ranks, me, digests_of(model)) for me, model in enumerate(models)], seed=seed)
    assert len(set(found)) == 1
    names = [name for name, _ in models[0].named_parameters()]
    assert names[found[0].first] == "2.weight"
    assert found[0].odd == ((0, 1) if ranks == 2 else (ranks - 1,))


def test_who_differs_from_the_most():
    a, b, c = (np.array(row, np.uint64) for row in ([1, 2, 3], [1, 9, 3], [1, 2, 4]))
    assert difference([a, a, a]) is None
    assert (difference([a, b, a]).odd, difference([a, b, a]).first) == ((1,), 1)
    assert (difference([c, a, a]).odd, difference([c, a, a]).first) == ((0,), 2)
    assert difference([a, a, a, b, c]).odd == (3, 4)
    assert difference([a, a, b, b]).odd == (0, 1, 2, 3)  # no telling which are right
    assert difference([a, b, c]).odd == (0, 1, 2)


def test_digests_of_a_wrong_length_are_refused():
    mine = np.arange(3, dtype=np.uint64)
    with pytest.raises(spardl.WireError, match=r"expected 3 digests of 8 bytes, got 16 bytes"):
        spardl.loopback([compare(2, 0, mine), compare(2, 1, mine[:2])])


def test_the_watch_reads_what_is_trained_and_verify_reads_everything(monkeypatch):
    """One rank: when ranks compare, and what."""
    from training.one_rank import distribute, sgd, train

    import spardl.torch.replicas as replicas

    looked_at = []
    monkeypatch.setattr(replicas, "digests", lambda tensors: looked_at.append(len(list(tensors))) or digests([]))
    for every, expected in ((2, [3, 3, 3]), (0, []), (None, []), (5, [3]), (7, [])):
        model = small_model()
        model[0].bias.requires_grad_(False)
        optimizer = sgd(model)
        handle = distribute(optimizer, model, verify_every=every)
        train(model, optimizer, 6)
        assert looked_at == expected
        looked_at.clear()
        handle.verify()
        assert looked_at == [4]
        looked_at.clear()


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "always"])
def test_wrong_verify_every(wrong):
    from training.one_rank import distribute, sgd

    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"expected verify_every to be a number of steps, or 0 for never, got"):
        distribute(sgd(model), model, verify_every=wrong)
