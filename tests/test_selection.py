"""The one-pass selection is exact whatever the last threshold said, and says when it had to look twice."""

import numpy as np
import pytest

from spardl import NonFiniteGradient, kernels, schedule
from spardl.selection import Selector, Thresholds

N, K, P = 30_000, 300, 3


@pytest.fixture
def selector(backend_name):
    return Selector(kernels.load(backend_name), schedule.cut_blocks(N, K, P), np.float32, rank=0)


@pytest.fixture
def searches(monkeypatch):
    """Counts the blocks that had to be searched in full."""
    counted = []
    in_full = Selector._select_in_full
    monkeypatch.setattr(
        Selector, "_select_in_full", lambda self, wanted: counted.extend(wanted) or in_full(self, wanted)
    )
    return counted


def check_blocks(selector, acc, received=None):
    summed = acc.copy()
    if received is not None:
        selector.receive(range(P), received)
        for at, values in received:
            summed[at] += values
    for j, (indices, values) in enumerate(selector.select(range(P))):
        block = summed[j * N // P : (j + 1) * N // P]
        expected = np.sort(np.lexsort((np.arange(len(block)), -np.abs(block)))[: K // P])
        np.testing.assert_array_equal(indices, expected + j * N // P)
        assert values.tobytes() == block[expected].tobytes()


def run(selector, grad, received=None):
    acc, zero = np.empty(N, np.float32), np.zeros(N, np.float32)
    selector.accumulate(grad.astype(np.float32), zero, acc)
    check_blocks(selector, acc, received)
    selector.thresholds = selector.learnt()


def test_warm_threshold_needs_no_second_look(selector, searches):
    rng = np.random.default_rng(0)
    run(selector, rng.standard_normal(N))
    assert searches == [0, 1, 2]  # nothing was known
    searches.clear()
    for _ in range(5):
        run(selector, rng.standard_normal(N))
    assert searches == []


@pytest.mark.parametrize("scale", [1e-3, 0.5, 3.0, 1e3])
def test_a_wrong_guess_is_found_out(selector, searches, scale):
    rng = np.random.default_rng(1)
    run(selector, rng.standard_normal(N))
    searches.clear()
    run(selector, rng.standard_normal(N) * scale)
    assert searches == [0, 1, 2]


def test_cancellation_by_what_is_received(selector, searches):
    """Other ranks' entries wipe out this rank's largest: the candidates no longer suffice."""
    rng = np.random.default_rng(2)
    run(selector, rng.standard_normal(N))
    grad = rng.standard_normal(N).astype(np.float32)
    received = []
    for j in range(P):
        block = np.arange(j * N // P, (j + 1) * N // P)
        at = np.sort(block[np.argsort(-np.abs(grad[block]))[:400]]).astype(np.int32)
        received.append((at, -grad[at]))
    searches.clear()
    run(selector, grad, received)
    assert searches == [0, 1, 2]


def test_fewer_non_zeros_than_wanted(selector, searches):
    sparse = np.zeros(N)
    sparse[[5, 12_000, 29_999]] = [1.0, -2.0, 3.0]
    for _ in range(3):
        acc = np.empty(N, np.float32)
        selector.accumulate(sparse.astype(np.float32), np.zeros(N, np.float32), acc)
        assert [indices.tolist() for indices, _ in selector.select(range(P))] == [[5], [12_000], [29_999]]
        selector.thresholds = selector.learnt()
    assert searches == [0, 1, 2]  # from the second time on, every non-zero is a candidate


def test_thresholds_of_the_smallest_numbers_there_are():
    """Growing smaller, the next would be 0."""
    smallest = 5e-324
    after = Thresholds([smallest], [0.5], [0.05]).after([smallest], [0.01])
    assert after.last == [smallest]
    assert 0 < after.slack[0] <= 0.5


def test_thresholds_change_only_on_commit(selector):
    before = selector.thresholds
    selector.accumulate(np.ones(N, np.float32), np.zeros(N, np.float32), np.empty(N, np.float32))
    selector.select([0])
    assert selector.thresholds is before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_gradients_are_named(selector, value):
    grad = np.zeros(N, np.float32)
    grad[[700, 20_000]] = value
    with pytest.raises(NonFiniteGradient, match="rank 0 at index 700") as caught:
        selector.accumulate(grad, np.zeros(N, np.float32), np.empty(N, np.float32))
    assert (caught.value.rank, caught.value.index) == (0, 700)


def test_expects_some_of_the_last_change_again():
    level = Thresholds.unknown([1]).after([1.0], [0.0])
    assert level.expected() == pytest.approx([1.0])
    rising = level.after([4.0], [0.0])  # taken for twice as much, and half of that was no growth
    assert rising.growth == pytest.approx([1.5])
    assert rising.expected() == pytest.approx([4 * (1 + 0.8 / 3)])
    assert level.after([0.0], [0.0]).last == [1.0]


def test_floor_gives_way_to_thresholds_that_fall_short():
    level = Thresholds.unknown([1]).after([1.0], [0.01])
    for _ in range(40):
        level = level.after([1.0], [0.01])
    assert level.floors() == pytest.approx([0.99])  # as close as it may be
    fallen = level.after([0.9], [0.01])
    assert fallen.slack == pytest.approx([0.01 + 1.5 * 0.1])
    assert level.after([1.1], [0.01]).slack == pytest.approx([0.01])  # above is no harm
    assert fallen.after([0.9], [0.01]).slack[0] < fallen.slack[0]
    assert level.after([1e-6], [0.01]).slack == [0.5]
