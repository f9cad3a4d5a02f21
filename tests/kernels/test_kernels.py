"""The fast backends against the oracle, to the bit.

Every call goes through ``run``, which hands the kernel copies of its arguments; so what it returns, what it writes
into its arguments and what it leaves alone are all compared.
"""

import copy
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spardl import kernels
from spardl.kernels import Kernels

ORACLE = kernels.load("numpy")

quick = settings(deadline=None, max_examples=int(os.environ.get("SPARDL_TEST_EXAMPLES", "40")))


class Types(NamedTuple):
    value: Any
    index: Any


@pytest.fixture(scope="module", params=["native", "numba"])
def backend(request: pytest.FixtureRequest) -> Kernels:
    try:
        return kernels.load(request.param)
    except ValueError:
        if request.param == "native":
            pytest.skip("native kernels not built: no C++ compiler at install time")
        raise


@pytest.fixture(
    scope="module",
    params=[Types(v, i) for v in (np.float32, np.float64) for i in (np.int32, np.int64)],
    ids=lambda types: f"{types.value.__name__}-{types.index.__name__}",
)
def types(request: pytest.FixtureRequest) -> Types:
    chosen: Types = request.param
    return chosen


# --- running and comparing ---


def ways_to_pass(backend: Kernels) -> Iterator[str]:
    """Goes through the ways in which a backend may pass over a gradient; processors differ in which is the faster."""
    for places in ("1", "4") if backend.name == "native" else ("auto",):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARDL_PLACES", places)
            yield f"places: {places}"


def arrays_in(tree: Any) -> list[npt.NDArray[Any]]:
    if isinstance(tree, np.ndarray):
        return [tree]
    return [array for branch in tree for array in arrays_in(branch)] if isinstance(tree, (tuple, list)) else []


def run(backend: Kernels, kernel: str, *args: Any) -> tuple[Any, Any]:
    """What the kernel returns, and its arguments afterwards."""
    args = copy.deepcopy(args)
    result = getattr(backend, kernel)(*args)
    for fresh in arrays_in(result):
        assert not any(np.shares_memory(fresh, given) for given in arrays_in(args)), f"{kernel}: result is not fresh"
    return result, args


def assert_same(got: Any, expected: Any, where: str) -> None:
    if isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray), where
        assert got.dtype == expected.dtype, where
        assert got.shape == expected.shape, where
        unsigned = f"u{expected.itemsize}"
        np.testing.assert_array_equal(got.view(unsigned), expected.view(unsigned), err_msg=f"{where}: {expected}")
    elif isinstance(expected, (tuple, list)):
        assert len(got) == len(expected), where
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    else:
        assert type(got) is type(expected), where
        assert got == expected, where


def check(backend: Kernels, kernel: str, *args: Any) -> Any:
    """The oracle's result, after making sure that the backend's is the same."""
    expected, expected_args = run(ORACLE, kernel, *args)
    got, got_args = run(backend, kernel, *args)
    assert_same(got, expected, f"{kernel} result")
    assert_same(got_args, expected_args, f"{kernel} arguments")
    return expected


# --- inputs ---


def numbers(types: Types) -> st.SearchStrategy[float]:
    """Ties and zeros of both signs, real numbers, and the extremes of the type (but no sum of a few overflows)."""
    info = np.finfo(types.value)
    extremes = [info.smallest_subnormal, -3 * info.smallest_subnormal, info.tiny, -info.tiny, info.max / 64]
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0])
    return few | few | st.floats(-1e3, 1e3, width=32) | st.sampled_from([float(x) for x in extremes])


def dense_vectors(types: Types, size: int | st.SearchStrategy[int]) -> st.SearchStrategy[npt.NDArray[Any]]:
    return hnp.arrays(types.value, size, elements=numbers(types))


@st.composite
def index_sets(draw: st.DrawFn, types: Types, size: int) -> npt.NDArray[Any]:
    return np.flatnonzero(draw(hnp.arrays(np.bool_, size))).astype(types.index)


@st.composite
def sparse_vectors(draw: st.DrawFn, types: Types, size: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    indices = draw(index_sets(types, size))
    return indices, draw(dense_vectors(types, len(indices)))


sizes = st.integers(0, 80)


def counts_to_select(length: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, length // 3, length, length + 5]) | st.integers(0, length)


def floors_for(types: Types, values: npt.NDArray[Any]) -> st.SearchStrategy[float]:
    """Floors that nearly all, some and no values reach, and those that one of the values exactly meets."""
    info = np.finfo(types.value)
    candidates = [float(info.smallest_subnormal), float(info.tiny), 1.0, 2.0, 2.5, float("inf")]
    met = [float(x) for x in np.abs(values) if np.isfinite(x) and x > 0]
    return st.sampled_from(candidates) | st.sampled_from(met or candidates)


def large(kind: str, size: int, dtype: Any) -> npt.NDArray[Any]:
    """Too large to draw element by element; blocks of this size take other paths than small ones."""
    rng = np.random.default_rng(size)
    if kind == "normal":
        return rng.standard_normal(size).astype(dtype)
    if kind == "ties":
        return rng.integers(-3, 4, size).astype(dtype)
    if kind == "sparse":
        return (rng.standard_normal(size) * (rng.random(size) < 0.003)).astype(dtype)
    if kind == "periodic":
        return np.resize(np.linspace(-1, 1, 64), size).astype(dtype)
    if kind == "close":
        return (1 + rng.integers(0, 50, size) * np.finfo(dtype).eps).astype(dtype)
    if kind == "subnormal":
        return (rng.integers(-2000, 2001, size) * np.finfo(dtype).smallest_subnormal).astype(dtype)
    assert kind == "growing"
    return np.linspace(0, 1, size).astype(dtype)


LARGE = ["normal", "ties", "sparse", "periodic", "close", "subnormal", "growing"]


# --- accumulate ---


def check_accumulate(
    backend: Kernels,
    types: Types,
    grad: npt.NDArray[Any],
    residual: npt.NDArray[Any],
    bounds: list[int],
    floors: list[float],
    rooms: list[int],
) -> tuple[list[int], int]:
    """What is stored beyond the candidates counted, or where a NaN's payload comes from, is nobody's business; nor are
    candidates where something is not finite."""
    starts = np.cumsum([2, *rooms])  # two places in front and behind that must stay as they are
    buffers = np.full(starts[-1] + 2, -7, types.index), np.full(starts[-1] + 2, -7, types.value)
    args = (
        *(range(len(floors)), grad, residual, np.full_like(grad, 5)),
        *(np.array(bounds, np.int64), np.array(floors, types.value), starts.astype(np.int64)),
        *buffers,
    )
    (expected_counts, expected_bad), expected_args = run(ORACLE, "accumulate", *args)
    expected_args[3][np.isnan(expected_args[3])] = np.nan
    for way in ways_to_pass(backend):
        (counts, bad), got_args = run(backend, "accumulate", *args)
        got_args[3][np.isnan(got_args[3])] = np.nan
        assert_same(bad, expected_bad, f"first index that is not finite, {way}")
        assert_same(got_args[1:7], expected_args[1:7], f"accumulate arguments, {way}")
        used = []
        if bad < 0:
            assert_same(counts, expected_counts, f"numbers of candidates, {way}")
            ends = starts[:-1] + np.minimum(counts, rooms)
            used = [slice(*ends) for ends in zip(starts[:-1], ends, strict=True)]
        for at in (slice(0, 2), slice(starts[-1], None), *used):
            assert_same([x[at] for x in got_args[7:]], [x[at] for x in expected_args[7:]], f"candidates {at}, {way}")
    return expected_counts, expected_bad


@quick
@given(data=st.data())
def test_accumulate(backend: Kernels, types: Types, data: st.DataObject) -> None:
    grad = data.draw(dense_vectors(types, st.integers(0, 200)))
    residual = data.draw(dense_vectors(types, len(grad)))
    cuts = data.draw(st.lists(st.integers(0, len(grad)), max_size=4))
    bounds = sorted([0, len(grad), *cuts])
    floors = [data.draw(floors_for(types, grad + residual)) for _ in bounds[1:]]
    rooms = [data.draw(st.integers(0, 5) | st.just(len(grad))) for _ in bounds[1:]]
    check_accumulate(backend, types, grad, residual, bounds, floors, rooms)


@quick
@given(data=st.data())
def test_accumulate_reports_the_first_non_finite_sum(backend: Kernels, types: Types, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 2000))
    grad, residual = np.ones((2, size), types.value)
    trouble = st.sampled_from([(np.nan, 1), (1, np.nan), (np.inf, 1), (1, -np.inf), (np.inf, -np.inf), ("max", "max")])
    places = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=3))
    for place in places:
        pair = data.draw(trouble)
        grad[place], residual[place] = (np.finfo(types.value).max if x == "max" else x for x in pair)
    cut = data.draw(st.integers(0, size))
    floors = data.draw(st.lists(st.sampled_from([1.0, 3.0, np.inf]), min_size=2, max_size=2))
    rooms = data.draw(st.lists(st.sampled_from([0, 3, size]), min_size=2, max_size=2))
    _, bad = check_accumulate(backend, types, grad, residual, [0, cut, size], floors, rooms)
    assert bad == min(places)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_accumulate_large_blocks(backend: Kernels, types: Types, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    grad, residual = large("normal", 600_001, types.value), large("normal", 600_002, types.value)[1:]
    bounds, floors = [0, 1, 550_000, 600_001], [1.0, 2.5, 0.01]
    enough = [1, 550_000, 50_001]
    counts, bad = check_accumulate(backend, types, grad, residual, bounds, floors, enough)
    assert bad == -1
    check_accumulate(backend, types, grad, residual, bounds, floors, list(counts))
    check_accumulate(backend, types, grad, residual, bounds, floors, [int(count * 0.7) for count in counts])
    grad[[300_000, 599_999]] = np.nan
    _, bad = check_accumulate(backend, types, grad, residual, bounds, floors, enough)
    assert bad == 300_000


# --- selection ---


@quick
@given(data=st.data())
def test_topk_dense(backend: Kernels, types: Types, data: st.DataObject) -> None:
    dense = data.draw(dense_vectors(types, sizes))
    base = data.draw(st.sampled_from([0, 17, 2**31 - 200 if types.index is np.int32 else 2**40]))
    check(backend, "topk_dense", dense, data.draw(counts_to_select(len(dense))), base, types.index)


@pytest.mark.parametrize("kind", LARGE)
def test_topk_dense_large_blocks(backend: Kernels, types: Types, kind: str) -> None:
    dense = large(kind, 70_003, types.value)
    for k in (0, 1, 700, 35_000, len(dense), len(dense) + 5):
        check(backend, "topk_dense", dense, k, 11, types.index)


def test_ties_go_to_the_lower_index_and_zeros_are_left(backend: Kernels, types: Types) -> None:
    dense = np.array([0.0, 2, -2, 3, -0.0, 2, 1], types.value)
    for k, chosen in [(2, [1, 3]), (3, [1, 2, 3]), (4, [1, 2, 3, 5]), (7, [1, 2, 3, 5, 6])]:
        indices, values = backend.topk_dense(dense, k, 100, types.index)
        assert_same(indices, np.array(chosen, types.index) + types.index(100), f"k={k}")
        assert_same(values, dense[chosen], f"k={k}")


@quick
@given(data=st.data())
def test_select(backend: Kernels, types: Types, data: st.DataObject) -> None:
    size = data.draw(sizes)
    indices, values = data.draw(sparse_vectors(types, size))
    over_indices, over_values = data.draw(sparse_vectors(types, data.draw(st.sampled_from([0, size]))))
    floor = data.draw(floors_for(types, np.concatenate([values, over_values])))
    k = data.draw(counts_to_select(len(indices)))
    check(backend, "select", indices, values, over_indices, over_values, k, floor)


def test_select_rounds_the_floor_to_the_values_type(backend: Kernels, types: Types) -> None:
    indices, values = np.arange(3, dtype=types.index), np.array([0.1, 0.3, 0.7], types.value)
    nothing = indices[:0], values[:0]
    for floor in (0.1, 0.3, 0.7):
        check(backend, "select", indices, values, *nothing, 3, floor)


@pytest.mark.parametrize("kind", LARGE)
def test_select_and_split_large_vectors(backend: Kernels, types: Types, kind: str) -> None:
    values = large(kind, 30_011, types.value)
    indices = np.arange(0, 3 * len(values), 3).astype(types.index)
    over = np.arange(0, 6000, 2).astype(types.index), large("normal", 3000, types.value)
    least = float(np.finfo(types.value).smallest_subnormal)
    close = max(least, float(np.quantile(np.abs(values), 0.4)))  # the k-th largest is not far above it
    for k in (1, 300, 15_000, len(values), len(values) + 5_000):
        check(backend, "split", indices, values, k)
        for floor in (least, close):
            check(backend, "select", indices, values, *over, k, floor)


@quick
@given(data=st.data())
def test_split(backend: Kernels, types: Types, data: st.DataObject) -> None:
    indices, values = data.draw(sparse_vectors(types, data.draw(sizes)))
    check(backend, "split", indices, values, data.draw(counts_to_select(len(indices))))


# --- merges ---


@quick
@given(data=st.data())
def test_add(backend: Kernels, types: Types, data: st.DataObject) -> None:
    size = data.draw(sizes)
    check(backend, "add", *data.draw(sparse_vectors(types, size)), *data.draw(sparse_vectors(types, size)))


def test_add_keeps_zero_sums_and_lone_negative_zeros(backend: Kernels, types: Types) -> None:
    a = np.array([1, 2, 5], types.index), np.array([-0.0, 3, -0.0], types.value)
    b = np.array([2, 4, 5], types.index), np.array([-3, -0.0, -0.0], types.value)
    indices, values = backend.add(*a, *b)
    assert_same(indices, np.array([1, 2, 4, 5], types.index), "indices")
    assert_same(values, np.array([-0.0, 0.0, -0.0, -0.0], types.value), "values")


@quick
@given(data=st.data())
def test_add_many(backend: Kernels, types: Types, data: st.DataObject) -> None:
    size = data.draw(sizes)
    check(backend, "add_many", data.draw(st.lists(sparse_vectors(types, size), min_size=1, max_size=5)))


@quick
@given(data=st.data())
def test_overlay(backend: Kernels, types: Types, data: st.DataObject) -> None:
    dense = data.draw(dense_vectors(types, sizes))
    over, vector = data.draw(st.tuples(*2 * [sparse_vectors(types, len(dense))]))
    check(backend, "overlay", *over, dense, *vector)


@quick
@given(data=st.data())
def test_scatter_add(backend: Kernels, types: Types, data: st.DataObject) -> None:
    dense = data.draw(dense_vectors(types, sizes))
    check(backend, "scatter_add", dense, *data.draw(sparse_vectors(types, len(dense))))


@pytest.mark.parametrize("kernel", ["overwrite_where", "add_where"])
@quick
@given(data=st.data())
def test_writes_where_wanted(backend: Kernels, types: Types, kernel: str, data: st.DataObject) -> None:
    dense = data.draw(dense_vectors(types, sizes))
    wanted = data.draw(index_sets(types, len(dense)))
    check(backend, kernel, dense, wanted, *data.draw(sparse_vectors(types, len(dense))))


def test_merges_of_large_vectors(backend: Kernels, types: Types) -> None:
    rng = np.random.default_rng(1)
    dense = large("normal", 100_000, types.value)
    a, b, c = (
        (indices, large("ties", len(indices), types.value))
        for indices in (np.flatnonzero(rng.random(len(dense)) < p).astype(types.index) for p in (0.1, 0.2, 0.001))
    )
    check(backend, "add_many", [a, b, c])
    check(backend, "add_many", [c, b, a])
    check(backend, "overlay", *a, dense, *b)
    check(backend, "scatter_add", dense, *b)
    check(backend, "add_where", dense, a[0], *b)
    check(backend, "overwrite_where", dense, b[0], *c)


# --- packed indices ---


@st.composite
def packable(draw: st.DrawFn, types: Types) -> tuple[npt.NDArray[Any], int, int]:
    """Indices, base and bits, with gaps of at most 2^6 times what ``bits`` hold, so that the unary parts stay short.

    Not more of them than there can be: low parts of so many bits must not add up to 2^62.
    """
    bits = draw(st.integers(0, 57))
    count = draw(st.integers(0, min(150, (2**62 - 1) >> bits)))
    base = draw(st.sampled_from([0, 1, 12_345]))
    highest = 2**31 - 1 if types.index is np.int32 else 2**62
    widest = min(2 ** (bits + 6), (highest - base) // (count + 1)) - 1
    gaps = draw(hnp.arrays(np.int64, count, elements=st.integers(0, 3) | st.integers(0, widest) | st.just(widest)))
    gaps = np.minimum(gaps, widest)
    return (np.cumsum(gaps + 1) - 1 + base).astype(types.index), base, bits


@quick
@given(data=st.data())
def test_pack_and_unpack(backend: Kernels, types: Types, data: st.DataObject) -> None:
    indices, base, bits = data.draw(packable(types))
    low, high = check(backend, "pack", indices, base, bits)
    count = data.draw(st.just(len(indices)) | st.integers(0, len(indices)))
    unpacked = check(backend, "unpack", low, high, count, base, bits, types.index)
    assert_same(unpacked, indices[:count], "round trip")


@quick
@given(data=st.data())
def test_unpack_refuses_a_stream_that_ends_early(backend: Kernels, types: Types, data: st.DataObject) -> None:
    indices, base, bits = data.draw(packable(types))
    low, high = backend.pack(indices, base, bits)
    low = np.concatenate([low, np.zeros(bits, np.uint64)])  # more low bits than the other stream has entries
    with pytest.raises(ValueError, match="packed indices"):
        backend.unpack(low, high, len(indices) + data.draw(st.integers(1, 64)), base, bits, types.index)


def test_packed_size_is_close_to_the_entropy(backend: Kernels, types: Types) -> None:
    span, count, bits = 10_000_000, 100_000, 6
    indices = np.random.default_rng(2).choice(span, count, replace=False)
    indices = np.sort(indices).astype(types.index)
    low, high = backend.pack(indices, 0, bits)
    density = count / span
    entropy = -(density * np.log2(density) + (1 - density) * np.log2(1 - density)) / density
    assert entropy == pytest.approx(8.08, abs=0.005)
    assert entropy < 64 * (len(low) + len(high)) / count < 8.2
    assert_same(backend.unpack(low, high, count, 0, bits, types.index), indices, "round trip")


# --- choosing a backend ---


def test_load_gives_the_backend_asked_for(backend: Kernels) -> None:
    assert kernels.load(backend.name) is backend
    assert backend.name in kernels.BACKENDS


@pytest.mark.parametrize("by_environment", [False, True])
def test_load_names_the_choices(by_environment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_environment:
        monkeypatch.setenv("SPARDL_BACKEND", "fortran")
    with pytest.raises(ValueError, match=r"backend: .*auto.*native.*numba.*numpy.*'fortran'"):
        kernels.load("auto" if by_environment else "fortran")


def test_load_honours_the_environment(backend: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", backend.name):
        monkeypatch.setenv("SPARDL_BACKEND", name)
        assert kernels.load().name == name
        assert kernels.load("numpy") is ORACLE, "what the caller asks for goes before the environment"
