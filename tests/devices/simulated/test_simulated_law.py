"""The law and consensus with gradients on (simulated) GPUs, alone and beside ranks that have theirs on CPUs."""

from dataclasses import astuple

import numpy as np
import pytest
from collectives.test_law import assert_law_exactly
from configurations import Setup, bits, setups, total
from devices.simulated.scheduler import Block
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spardl import NonFiniteGradient, SparseVector, schedule
from spardl.kernels.cuda import messages

small = setups(max_n=150, max_ranks=6)


class Placed(Setup):
    """Every rank's gradient lives where its kernels do; results are looked at on the host."""

    def reduce(self, reducers, grads):
        placed = [r._kernels.arrays.from_host(grad) for r, grad in zip(reducers, grads, strict=True)]
        return [
            SparseVector.trusted(*r._kernels.arrays.to_host(result.indices, result.values), result.size)
            for r, result in zip(reducers, super().reduce(reducers, placed), strict=True)
        ]


class Direct(Placed):
    """And messages of (simulated) GPUs are in their memory."""

    def reducers(self, *args, **options):
        reducers = super().reducers(*args, **options)
        for reducer in reducers:
            if reducer._kernels.name == "cuda":
                reducer._kernels.arrays.messages = messages.DirectMessages(reducer._kernels.arrays._on)
        return reducers


def placed(setup, direct=False):
    return (Direct if direct else Placed)(*astuple(setup))


@given(setup=small, direct=st.booleans())
@settings(max_examples=15)
def test_law_and_consensus_exactly_on_integers(setup, direct):
    assert_law_exactly(placed(setup, direct), ["cuda"])


@given(setup=small, direct=st.booleans())
@settings(max_examples=12)
def test_ranks_on_cpus_and_gpus_agree(setup, direct):
    assert_law_exactly(placed(setup, direct), ["cuda", "native", "numba", "numpy"])


@pytest.mark.parametrize("ranks", range(1, 7))
def test_law_for_every_number_of_ranks_and_teams(ranks):
    for teams in schedule.team_counts(ranks):
        for sag in ["r", "b"] if schedule.is_power_of_two(teams) else ["b"]:
            setup = Setup(ranks, teams, sag, 64 + ranks, 9, "float32", "auto", ranks, 7)
            assert_law_exactly(placed(setup, direct=ranks % 2 == 0), ["cuda", "native"], reduces=2)


@given(setup=small, wire_dtype=st.sampled_from(["same", "bf16", "fp16"]), direct=st.booleans())
@settings(max_examples=15)
def test_a_gpu_s_bits_are_those_of_a_cpu(setup, wire_dtype, direct):
    """Results and residuals, on real numbers, over several reduces: thresholds are learnt alike."""
    ours = placed(setup, direct).reducers(["cuda"], wire_dtype=wire_dtype)
    theirs = placed(setup).reducers(["numpy"], wire_dtype=wire_dtype)
    rng = np.random.default_rng(setup.seed)
    for _ in range(3):
        grads = setup.float_gradients(rng)
        got, expected = placed(setup).reduce(ours, grads), placed(setup).reduce(theirs, grads)
        assert [bits(result) for result in got] == [bits(result) for result in expected]
        for one, other in zip(ours, theirs, strict=True):
            assert one.residual.tobytes() == other.residual.tobytes()


@given(setup=small, wire_dtype=st.sampled_from(["bf16", "fp16"]))
@settings(max_examples=10)
def test_law_holds_exactly_with_rounded_values(setup, wire_dtype):
    assume(schedule.is_power_of_two(setup.teams))
    setup = placed(setup)
    reducers = setup.reducers(["cuda"], wire_dtype=wire_dtype)
    grads = list(np.random.default_rng(setup.seed).integers(-3000, 3001, (setup.ranks, setup.n)).astype(setup.dtype))
    results = setup.reduce(reducers, grads)
    left = total([r.residual for r in reducers], setup.n)
    np.testing.assert_array_equal(total(grads, setup.n), results[0].to_dense().astype(np.float64) + left)


@pytest.mark.parametrize("policy", ["partial", "local"])
def test_other_policies_are_those_of_a_cpu(policy):
    setup = placed(Setup(3, 1, "r", 90, 12, "float64", "auto", 5, None))
    grads = setup.integer_gradients(np.random.default_rng(5), 1)
    ours, theirs = (setup.reducers([backend], residual=policy) for backend in ("cuda", "numpy"))
    got, expected = setup.reduce(ours, grads), setup.reduce(theirs, grads)
    assert [bits(result) for result in got] == [bits(result) for result in expected]
    assert [r.residual.tobytes() for r in ours] == [r.residual.tobytes() for r in theirs]


def test_order_of_blocks_and_threads_makes_no_difference(monkeypatch):
    setup = placed(Setup(4, 2, "b", 150, 20, "float32", "packed", 3, None))
    seen = set()
    for seed in (None, 1, 2):
        monkeypatch.setattr(Block, "seed", seed)
        rng = np.random.default_rng(3)
        reducers = setup.reducers(["cuda"])
        for _ in range(2):
            results = setup.reduce(reducers, setup.float_gradients(rng))
        seen.add((bits(results[0]), *(r.residual.tobytes() for r in reducers)))
    assert len(seen) == 1


def test_a_failed_reduce_changes_nothing_and_undo_takes_one_back():
    setup = placed(Setup(2, 1, "r", 60, 8, "float32", "auto", 1, None))
    reducers = setup.reducers(["cuda", "native"])
    rng = np.random.default_rng(1)
    setup.reduce(reducers, setup.float_gradients(rng))
    before = [r.residual.tobytes() for r in reducers]
    grads = setup.float_gradients(rng)
    bad = [grads[0].copy(), grads[1]]
    bad[0][17] = np.nan
    with pytest.raises(NonFiniteGradient, match="on rank 0 at index 17: gradient nan, residual"):
        setup.reduce(reducers, bad)
    assert [r.residual.tobytes() for r in reducers] == before
    first = setup.reduce(reducers, grads)
    for r in reducers:
        r.undo()
    assert [r.residual.tobytes() for r in reducers] == before
    assert bits(setup.reduce(reducers, grads)[0]) == bits(first[0])


def test_checkpoints_move_between_devices():
    setup = placed(Setup(2, 2, "b", 80, 10, "float32", "auto", 1, None))
    rng = np.random.default_rng(2)
    ours, theirs = setup.reducers(["cuda"]), setup.reducers(["native"])
    setup.reduce(ours, setup.float_gradients(rng))
    for one, other in zip(ours, theirs, strict=True):
        other.load_state_dict(one.state_dict())
    grads = setup.float_gradients(rng)
    assert bits(setup.reduce(ours, grads)[0]) == bits(setup.reduce(theirs, grads)[0])


def test_direct_messages_leave_entries_on_the_device(monkeypatch):
    """What crosses are counts and fronts of messages; more entries do not make more of it."""
    monkeypatch.setattr(messages, "_FRONT", 96)
    crossed = {}
    for k in (60, 90):
        setup = placed(Setup(2, 1, "r", 300, k, "float32", "auto", 1, None), direct=True)
        reducers = setup.reducers(["cuda"])
        grads = setup.float_gradients(np.random.default_rng(4))
        on_device = [r._kernels.arrays.from_host(grad) for r, grad in zip(reducers, grads, strict=True)]
        Setup.reduce(setup, reducers, on_device)
        calls = reducers[0]._kernels.arrays._on.calls
        calls.clear()
        Setup.reduce(setup, reducers, on_device)
        crossed[k] = dict(calls)
    assert crossed[60]["bytes_to_host"] == crossed[90]["bytes_to_host"] < 2 * 96 + 300
    assert crossed[60]["bytes_to_device"] == crossed[90]["bytes_to_device"] < 1400  # tables


def test_nothing_dense_comes_to_the_host():
    """Per reduce, what crosses is in proportion to k, not to n, and nobody waits but for what is needed next."""
    crossed = {}
    for n in (300, 1200):
        setup = placed(Setup(2, 1, "r", n, 12, "float32", "auto", 1, None))
        reducers = setup.reducers(["cuda"])
        grads = setup.float_gradients(np.random.default_rng(4))
        on_device = [r._kernels.arrays.from_host(grad) for r, grad in zip(reducers, grads, strict=True)]
        Setup.reduce(setup, reducers, on_device)  # the first has no thresholds to go by
        calls = reducers[0]._kernels.arrays._on.calls
        calls.clear()
        Setup.reduce(setup, reducers, on_device)
        crossed[n] = dict(calls)
        assert calls["bytes_to_host"] < 600
        assert calls["waits"] <= 12
    assert crossed[1200]["bytes_to_device"] < 1300  # mostly tables, with a row per block
    for way in ("bytes_to_host", "bytes_to_device"):
        assert abs(crossed[300][way] - crossed[1200][way]) <= 100
