"""The rivals: the same laws as SparDL's, and what each of them promises beyond that."""

from dataclasses import dataclass

import numpy as np
import pytest
from configurations import bits, total
from hypothesis import given, settings
from hypothesis import strategies as st

from spardl import NonFiniteGradient, kernels, loopback, schedule
from spardl.collectives.rivals import DENSE, RIVALS
from spardl.runtime.loopback import Loopback
from spardl.wire import Codec

SPARSE = [name for name in RIVALS if name not in DENSE]


@dataclass(frozen=True)
class Race:
    """One algorithm on some ranks."""

    algorithm: str
    ranks: int
    n: int
    k: int
    dtype: str = "float32"
    wire: str = "auto"
    wire_dtype: str = "same"
    order: int | None = None
    backends: tuple[str, ...] = ("native",)

    def reducers(self, **options):
        chosen = [kernels.load(self.backends[rank % len(self.backends)]) for rank in range(self.ranks)]
        return [
            RIVALS[self.algorithm](
                self.n,
                self.k,
                rank=rank,
                ranks=self.ranks,
                dtype=self.dtype,
                kernels=chosen[rank],
                codec=Codec(chosen[rank], self.wire, self.wire_dtype),
                **options,
            )
            for rank in range(self.ranks)
        ]

    def reduce(self, reducers, grads):
        """The result, the same on all ranks."""
        results = loopback([r.reduce(g) for r, g in zip(reducers, grads, strict=True)], seed=self.order)
        assert len({bits(result) for result in results}) == 1
        assert np.all(np.diff(results[0].indices) > 0)
        return results[0]

    def integers(self, rng, most=9):
        return list(rng.integers(-most, most + 1, (self.ranks, self.n)).astype(self.dtype))

    def floats(self, rng):
        return list(rng.standard_normal((self.ranks, self.n)).astype(self.dtype))


@st.composite
def races(draw, algorithms=tuple(RIVALS), **fixed):
    ranks = draw(st.integers(1, 9))
    n = draw(st.sampled_from([0, 1, ranks - 1, ranks, ranks + 1]) | st.integers(0, 100) | st.integers(300, 900))
    k = draw(st.sampled_from([0, 1, n, n + 3]) | st.integers(0, max(1, n // 5)))
    choices = {
        "dtype": st.sampled_from(["float32", "float64"]),
        "wire": st.sampled_from(["raw", "packed", "auto"]),
        "order": st.none() | st.integers(0, 2**32 - 1),
        "backends": st.sampled_from([("native",), ("numba",), ("numpy",), ("native", "numba", "numpy")]),
    }
    drawn = {name: draw(values) for name, values in choices.items() if name not in fixed}
    return Race(draw(st.sampled_from(algorithms)), ranks, n, k, **drawn | fixed)


def assert_law(race, reducers, grads):
    owed = total(grads, race.n) + total([r.residual for r in reducers], race.n)
    result = race.reduce(reducers, grads)
    left = total([r.residual for r in reducers], race.n)
    np.testing.assert_array_equal(owed, result.to_dense().astype(np.float64) + left)
    return result


@given(race=races(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_law_and_consensus_exactly_on_integers(race, seed):
    rng = np.random.default_rng(seed)
    reducers = race.reducers()
    for _ in range(4):
        assert_law(race, reducers, race.integers(rng))


@given(race=races(SPARSE), wire_dtype=st.sampled_from(["bf16", "fp16"]), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_law_holds_exactly_with_rounded_values(race, wire_dtype, seed):
    """Integers that 16 bits cannot hold: the rounding errors are exact, and stay with whoever rounded."""
    race = Race(**race.__dict__ | {"wire_dtype": wire_dtype})
    rng = np.random.default_rng(seed)
    reducers = race.reducers()
    for _ in range(2):
        assert_law(race, reducers, race.integers(rng, 3000))


@pytest.mark.parametrize("algorithm", RIVALS)
@pytest.mark.parametrize("ranks", range(1, 10))
def test_law_at_the_edges(algorithm, ranks):
    """No luck of the draw: every P, sizes around it, budgets from nothing to everything."""
    rng = np.random.default_rng(ranks)
    for n in {0, 1, ranks - 1, ranks + 1, 300}:
        for k in {0, 1, n // 10, n}:
            race = Race(algorithm, ranks, n, k)
            reducers = race.reducers()
            for _ in range(2):
                assert_law(race, reducers, race.integers(rng))


# -- what each of them computes --------------------------------------------------------------------------------------


@given(race=races(list(DENSE)), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_dense_sums_are_complete(race, seed):
    grads = race.floats(np.random.default_rng(seed))
    reducers = race.reducers()
    result = race.reduce(reducers, grads)
    assert result.nnz == race.n
    sizes = total([np.abs(g) for g in grads], race.n)
    assert np.all(np.abs(result.values - total(grads, race.n)) <= race.ranks * np.finfo(race.dtype).eps * sizes)
    assert not any(r.residual.any() for r in reducers)


def in_pairs(vectors):
    """Ranks past a power of two are added to the first; then neighbours, neighbours of neighbours, …"""
    core = schedule.largest_power_of_two(len(vectors))
    sums = [v + vectors[j + core] if j + core < len(vectors) else v for j, v in enumerate(vectors[:core])]
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def in_halves(vectors):
    """The same for recursive halving: the far ones first."""
    core = schedule.largest_power_of_two(len(vectors))
    sums = [v + vectors[j + core] if j + core < len(vectors) else v for j, v in enumerate(vectors[:core])]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
    return sums[0]


@pytest.mark.parametrize(
    ("algorithm", "add_up"),
    [("dense_recursive_doubling", in_pairs), ("dense_rabenseifner", in_halves), ("dense_mpi", sum)],
)
@pytest.mark.parametrize("ranks", range(1, 10))
def test_dense_sums_in_the_documented_order(algorithm, add_up, ranks):
    race = Race(algorithm, ranks, 500, 1)
    grads = race.floats(np.random.default_rng(ranks))
    assert race.reduce(race.reducers(), grads).values.tobytes() == add_up(grads).tobytes()


@given(race=races(["topk_a", "topk_dsa"]), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_sparse_input_is_summed_exactly_in_rank_order(race, seed):
    """No rank has more than k entries, so nothing is left out and the residual stays zero."""
    rng = np.random.default_rng(seed)
    grads = race.floats(rng)
    for grad in grads:
        grad[rng.permutation(race.n)[min(race.k, race.n) :]] = 0
    reducers = race.reducers()
    result = race.reduce(reducers, grads)
    np.testing.assert_array_equal(result.to_dense(), sum(grads))
    assert not any(r.residual.any() for r in reducers)


@given(race=races(["topk_a", "topk_dsa"]), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_everyones_largest_are_in_the_result_and_nothing_else(race, seed):
    grads = race.floats(np.random.default_rng(seed))
    selected = [np.zeros_like(g) for g in grads]
    for grad, own in zip(grads, selected, strict=True):
        largest = np.argsort(-np.abs(grad), kind="stable")[: race.k]
        own[largest] = grad[largest]
    reducers = race.reducers()
    np.testing.assert_array_equal(race.reduce(reducers, grads).to_dense(), sum(selected))
    for reducer, grad, own in zip(reducers, grads, selected, strict=True):
        np.testing.assert_array_equal(reducer.residual, np.where(own != 0, 0, grad))


def test_regions_turn_dense_when_that_is_shorter():
    """Four ranks' selections of half of everything fill the regions: 4 bytes an element instead of 8."""
    race = Race("topk_dsa", 4, 4000, 2000, wire="raw")
    grads = race.floats(np.random.default_rng(0))
    run = Loopback([r.reduce(g) for r, g in zip(race.reducers(), grads, strict=True)])
    assert {result.nnz for result in run.run()} == {4000}
    split = 3 * (8 * 500 + 48)
    assert all(split + 3 * 4000 < t.bytes_sent < 1.05 * split + 3 * 4100 for t in run.traffic)


@pytest.mark.parametrize("ranks", range(1, 10))
def test_gtopk_keeps_the_largest_of_every_merge(ranks):
    race = Race("gtopk", ranks, 400, 30)
    grads = race.floats(np.random.default_rng(ranks))

    def largest(vector):
        return np.where(np.isin(np.arange(race.n), np.argsort(-np.abs(vector), kind="stable")[: race.k]), vector, 0)

    held = [largest(g) for g in grads]
    distance = 1
    while distance < ranks:
        for w in range(0, ranks - distance, 2 * distance):
            held[w] = largest(held[w] + held[w + distance])
        distance *= 2
    result = race.reduce(race.reducers(), grads)
    np.testing.assert_array_equal(result.to_dense(), held[0])
    assert result.nnz == race.k


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_oktopk_does_not_drift(ranks):
    """Gradients that grow and shrink a hundredfold between tunings: the result stays between 2k/3 and 3k/2."""
    race = Race("oktopk", ranks, 2000, 60)
    rng = np.random.default_rng(ranks)
    reducers = race.reducers(retune_every=16)
    scales = np.exp(np.log(100) * np.sin(np.arange(50)))
    counts = [race.reduce(reducers, [g * np.float32(s) for g in race.floats(rng)]).nnz for s in scales]
    assert all(40 <= count <= 90 for count in counts)
    assert counts[::16] == [60] * 4


@pytest.mark.parametrize("ranks", [5, 6, 8])
def test_oktopk_evens_out_and_balances_regions(ranks):
    """All large entries in one region: it is cut finer at the next tuning, and until then shared out for the gather."""
    race = Race("oktopk", ranks, 4000, 200)
    reducers = race.reducers(retune_every=3)
    rng = np.random.default_rng(1)

    def lopsided(where):
        grads = race.integers(rng)
        for grad in grads:
            grad[where : where + 300] *= 1000
        return grads

    assert_law(race, reducers, lopsided(0))  # tunes: the regions follow
    bounds = reducers[0].state_dict()["bounds"]
    assert bounds[-2] <= 300
    assert all(np.array_equal(r.state_dict()["bounds"], bounds) for r in reducers)
    for r in reducers:
        r.owe(np.zeros(race.n, np.float32))
    grads = lopsided(3000)  # now all in the last region
    run = Loopback([r.reduce(g) for r, g in zip(reducers, grads, strict=True)])
    results = run.run()
    assert len({bits(result) for result in results}) == 1
    np.testing.assert_array_equal(
        total(grads, race.n), results[0].to_dense() + total([r.residual for r in reducers], race.n)
    )
    assert run.traffic[-1].messages_sent > len([r for phase in schedule.oktopk(ranks, ranks - 1) for r in phase])


# -- traffic -----------------------------------------------------------------------------------------------------------


def phases_of(algorithm, ranks, rank):
    walked = getattr(schedule, algorithm)(ranks, rank)
    if algorithm in DENSE:
        return [*walked.reduce, *walked.gather]
    if algorithm == "oktopk":
        return [*walked.split, *walked.numbers, *walked.gather]
    return walked


@pytest.mark.parametrize("algorithm", [name for name in RIVALS if name != "dense_mpi"])
@pytest.mark.parametrize("ranks", range(1, 18))
def test_counted_traffic_equals_the_schedule(algorithm, ranks):
    race = Race(algorithm, ranks, 1700, 170)
    grads = race.floats(np.random.default_rng(ranks))
    reducers = race.reducers()
    for tuned in (False, True):  # Ok-Topk's first reduce has one gather more; the second is the same again without
        for r in reducers:
            r.owe(np.zeros(race.n, np.float32))
        run = Loopback([r.reduce(g) for r, g in zip(reducers, grads, strict=True)])
        run.run()
        for rank, traffic in enumerate(run.traffic):
            steps = phases_of(algorithm, ranks, rank)
            if algorithm == "oktopk" and not tuned:
                steps = [*steps, *schedule.oktopk(ranks, rank).numbers]
            assert traffic.rounds == sum(hasattr(step, "receives") for step in steps)
            assert traffic.messages_sent == sum(hasattr(step, "sends") for step in steps)


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize("algorithm", [name for name in RIVALS if name != "dense_mpi"])
def test_every_message_has_its_receiver(algorithm, ranks):
    sent, received = [], []
    for rank in range(ranks):
        for step in phases_of(algorithm, ranks, rank):
            if hasattr(step, "sends"):
                sent.append((rank, step.to, step.sends))
            if hasattr(step, "receives"):
                received.append((step.source, rank, step.receives))
    assert sorted(sent) == sorted(received)
    assert all(source != to for source, to, _ in sent)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_rabenseifner_sends_as_little_as_the_ring_in_fewer_rounds(ranks):
    n = 16 * 100
    counted = {}
    for algorithm in ("dense_ring", "dense_rabenseifner", "dense_mpi"):
        race = Race(algorithm, ranks, n, 0)
        run = Loopback(
            [r.reduce(g) for r, g in zip(race.reducers(), race.floats(np.random.default_rng(0)), strict=True)]
        )
        run.run()
        counted[algorithm] = run.traffic[0]
    optimal = 2 * (ranks - 1) * 4 * n // ranks
    assert counted["dense_ring"].bytes_sent == counted["dense_rabenseifner"].bytes_sent == optimal
    assert counted["dense_rabenseifner"].rounds == 2 * schedule.ceil_log2(ranks)
    assert optimal <= counted["dense_mpi"].bytes_sent <= optimal + 500
    assert counted["dense_mpi"].rounds == 1 + schedule.ceil_log2(ranks)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_evening_out_keeps_everything_in_order(counts):
    entries = iter(range(sum(counts)))
    held = [[next(entries) for _ in range(count)] for count in counts]
    moves = [schedule.even_out(counts, w) for w in range(len(counts))]
    got = [
        [e for source in moves[w].sources for to, lo, hi in moves[source].sends if to == w for e in held[source][lo:hi]]
        for w in range(len(counts))
    ]
    assert [e for entries in got for e in entries] == list(range(sum(counts)))
    assert max(map(len, got)) - min(map(len, got)) <= 1


# -- transactions and checkpoints --------------------------------------------------------------------------------------


def frozen(reducer):
    return {name: np.array(value).tobytes() for name, value in reducer.state_dict().items()}


@pytest.mark.parametrize("algorithm", RIVALS)
def test_undo_takes_exactly_one_reduce_back(algorithm):
    race = Race(algorithm, 5, 600, 40)
    rng = np.random.default_rng(3)
    reducers = race.reducers()
    for r in reducers:
        r.owe(rng.standard_normal(race.n).astype(np.float32))
    before, grads = [frozen(r) for r in reducers], race.floats(rng)
    first = race.reduce(reducers, grads)
    after = [frozen(r) for r in reducers]
    for r in reducers:
        r.undo()
    assert [frozen(r) for r in reducers] == before
    assert bits(race.reduce(reducers, grads)) == bits(first)
    assert [frozen(r) for r in reducers] == after
    for r in reducers:
        r.undo()
        with pytest.raises(RuntimeError, match="no reduce to take back"):
            r.undo()


@pytest.mark.parametrize("algorithm", RIVALS)
def test_a_reduce_that_fails_changes_nothing(algorithm):
    race = Race(algorithm, 4, 500, 30)
    rng = np.random.default_rng(9)
    reducers = race.reducers()
    race.reduce(reducers, race.floats(rng))
    before = [frozen(r) for r in reducers]
    bad = race.floats(rng)
    bad[2][17] = np.nan
    with pytest.raises(NonFiniteGradient, match="rank 2 at index 17"):
        race.reduce(reducers, bad)
    if algorithm in SPARSE:
        with pytest.raises(NonFiniteGradient, match="overflows at index"):
            race.reduce(reducers, [np.full(race.n, 3e38, np.float32)] * 4)
    assert [frozen(r) for r in reducers] == before
    race.reduce(reducers, race.floats(rng))


@pytest.mark.parametrize("algorithm", RIVALS)
def test_ranks_with_different_types_are_told(algorithm):
    mixed = [Race(algorithm, 3, 100, 10, dtype).reducers()[rank] for rank, dtype in enumerate(["f4", "f4", "f8"])]
    grads = [np.ones(100, r.dtype) for r in mixed]
    with pytest.raises(TypeError, match=r"dtype: float32 on rank [01], float64 on rank 2"):
        loopback([r.reduce(g) for r, g in zip(mixed, grads, strict=True)])


@pytest.mark.parametrize("algorithm", RIVALS)
def test_state_dict_goes_on_bit_for_bit(algorithm):
    race = Race(algorithm, 3, 900, 50)
    rng = np.random.default_rng(2)
    gradients = [race.floats(rng) for _ in range(12)]
    straight = race.reducers()
    for grads in gradients[:6]:
        race.reduce(straight, grads)
    resumed = Race(algorithm, 3, 900, 50, backends=("numba",)).reducers()
    for new, old in zip(resumed, straight, strict=True):
        new.load_state_dict(old.state_dict())
    for grads in gradients[6:]:
        assert bits(race.reduce(straight, grads)) == bits(race.reduce(resumed, grads))
    assert [frozen(r) for r in straight] == [frozen(r) for r in resumed]


@pytest.mark.parametrize("algorithm", RIVALS)
def test_rebudget_loses_nothing(algorithm):
    race = Race(algorithm, 3, 300, 30)
    rng = np.random.default_rng(4)
    reducers = race.reducers()
    for k in (30, 5, 0, 120):
        for r in reducers:
            r.rebudget(k)
        result = assert_law(race, reducers, race.integers(rng))
        assert algorithm not in ("gtopk", "oktopk") or result.nnz == k
