"""The kernels as numba loops: compiled at first use (and cached on disk), for machines without a C++ compiler.

No fast-math anywhere: reordering sums or ignoring the sign of zero would part company with the other backends' bits.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from spardl.kernels.api import INDEX_LIMIT, Arrays, Indices, Pair, Selected, Split, Values
from spardl.kernels.checks import require_entries, require_increasing, require_last, require_words
from spardl.kernels.memory import HOST
from spardl.kernels.one_by_one import OneByOne

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _jit(function: _Function) -> _Function:
    return cast(_Function, numba.njit(nogil=True, cache=True, error_model="numpy")(function))


class NumbaKernels(OneByOne):
    name = "numba"
    arrays: Arrays = HOST

    def accumulate(
        self,
        blocks: Sequence[int],
        grad: Values,
        residual: Values,
        out: Values,
        bounds: npt.NDArray[np.int64],
        floors: Values,
        starts: npt.NDArray[np.int64],
        indices: Indices,
        values: Values,
    ) -> tuple[list[int], int]:
        counts = np.zeros(len(blocks), np.int64)
        which = np.array(blocks, np.int64)
        bad = _accumulate(which, grad, residual, out, bounds, floors, starts, indices, values, counts)
        return counts.tolist(), int(bad)

    def topk_dense(self, dense: Values, k: int, base: int, index_dtype: npt.DTypeLike) -> Pair:
        bits = _bits(dense)
        key, ties, count = _find_cut(bits, k)
        indices, values = np.empty(count, index_dtype), np.empty(count, dense.dtype)
        _take_dense(dense, bits, key, ties, base, indices, values)
        return indices, values

    def select(
        self, indices: Indices, values: Values, over_indices: Indices, over_values: Values, k: int, floor: float
    ) -> Selected:
        # NumPy compares float32 values with the floor rounded to float32; so must we, to agree on ties.
        exact_floor = values.dtype.type(floor)
        indices, values = _override_above(indices, values, over_indices, over_values, exact_floor)
        bits = _bits(values)
        key, ties, count = _find_cut(bits, k)
        threshold = float(bits.dtype.type(key).view(values.dtype)) if 0 < k == count else 0.0
        top_indices, top_values, _, _ = _split(indices, values, bits, key, ties, count)
        return Selected(top_indices, top_values, threshold, len(indices), float(np.abs(top_values).max(initial=0)))

    def split(self, indices: Indices, values: Values, k: int) -> Split:
        bits = _bits(values)
        return Split(*_split(indices, values, bits, *_find_cut(bits, k)))

    def add(self, indices_a: Indices, values_a: Values, indices_b: Indices, values_b: Values) -> Pair:
        indices, values = _add(indices_a, values_a, indices_b, values_b)
        return indices, values

    def add_many(self, vectors: Sequence[Pair]) -> Pair:
        if len(vectors) == 1:
            indices, values = vectors[0]
            return indices.copy(), values.copy()
        total = vectors[0]
        for vector in vectors[1:]:
            total = _add(*total, *vector)
        return total

    def overlay(
        self, over_indices: Indices, over_values: Values, dense: Values, indices: Indices, values: Values
    ) -> Pair:
        union, total = _overlay(over_indices, over_values, dense, indices, values)
        return union, total

    def scatter_add(self, dense: Values, indices: Indices, values: Values) -> None:
        _scatter_add(dense, indices, values)

    def overwrite_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        _overwrite_where(dense, wanted, indices, values)

    def add_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        _add_where(dense, wanted, indices, values)

    def pack(self, indices: Indices, base: int, bits: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        low = np.zeros(_words(len(indices) * bits), np.uint64)
        length = _unary_length(indices, base, bits)
        require_increasing(length >= 0, base)
        high = np.zeros(_words(length), np.uint64)
        _pack(indices, base, bits, low, high)
        return low, high

    def unpack(
        self,
        low: npt.NDArray[np.uint64],
        high: npt.NDArray[np.uint64],
        count: int,
        base: int,
        bits: int,
        index_dtype: npt.DTypeLike,
        end: int = INDEX_LIMIT,
    ) -> Indices:
        require_words(len(low), count, bits)  # reading on would leave the array
        indices = np.empty(count, index_dtype)
        found, last = _unpack(low, high, base, bits, indices)
        require_entries(found, count)
        if count:
            require_last(last, base, end, index_dtype)
        return indices


def _bits(values: Values) -> npt.NDArray[Any]:
    """The same memory as signed integers: without the sign bit they sort like magnitudes, and zero is key 0."""
    return values.view(f"i{values.itemsize}")


def _words(bits: int) -> int:
    return -(-bits // 64)


# --- accumulate ---

_STRETCH = 256  # sums made in one go: they are still in the L1 cache when they are looked at


@_jit
def _accumulate(
    blocks: Any,
    grad: Any,
    residual: Any,
    out: Any,
    bounds: Any,
    floors: Any,
    starts: Any,
    indices: Any,
    values: Any,
    counts: Any,
) -> Any:
    first_bad = -1
    for number, j in enumerate(blocks):
        lo, hi = bounds[j], bounds[j + 1]
        room = slice(starts[j], starts[j + 1])
        counts[number], bad = _accumulate_block(
            grad[lo:hi], residual[lo:hi], out[lo:hi], floors[j], lo, indices[room], values[room]
        )
        if bad >= 0 and not 0 <= first_bad < lo + bad:
            first_bad = lo + bad
    return first_bad


@_jit
def _accumulate_block(grad: Any, residual: Any, out: Any, floor: Any, base: Any, indices: Any, values: Any) -> Any:
    # The inner loops count and collect bits instead of branching: only such loops become vector instructions, and at
    # 1 % density a branch on every hit would be mispredicted every time.
    largest = np.finfo(out.dtype).max
    count = 0
    first_bad = -1
    for begin in range(0, len(out), _STRETCH):
        end = min(begin + _STRETCH, len(out))
        bad = 0
        for i in range(begin, end):
            total = grad[i] + residual[i]
            out[i] = total
            bad += not abs(total) <= largest
        if bad > 0 and first_bad < 0:
            first_bad = _first_non_finite(out, begin)
        for lo in range(begin, end, 64):
            hits = np.uint64(0)
            for i in range(lo, min(lo + 64, end)):
                hits |= np.uint64(abs(out[i]) >= floor) << np.uint64(i - lo)
            while hits != 0:
                if count < len(indices):
                    at = lo + _lowest_one(hits)
                    indices[count] = base + at
                    values[count] = out[at]
                count += 1
                hits &= hits - np.uint64(1)
    return count, first_bad


@_jit
def _first_non_finite(values: Any, start: Any) -> Any:
    """Where the first one at or after ``start`` is; there must be one."""
    at = start
    while np.isfinite(values[at]):
        at += 1
    return at


# In this word all 64 stretches of six bits differ, so that the one that a shift moves to the top tells the shift.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_SHIFT_OF = np.zeros(64, np.int64)
_SHIFT_OF[(_DE_BRUIJN << np.arange(64, dtype=np.uint64)) >> np.uint64(58)] = np.arange(64)


@_jit
def _lowest_one(word: Any) -> Any:
    """Position of the lowest bit that is set; there must be one."""
    alone = word & (~word + np.uint64(1))
    return _SHIFT_OF[(alone * _DE_BRUIJN) >> np.uint64(58)]


# --- selection ---

_DIGIT_BITS = 11
_FEW = 4096  # keys that are cheaper copied out than searched for again in the whole array


@_jit
def _find_cut(bits: Any, k: Any) -> Any:
    """The k largest are the keys above the first number returned, and as many equal to it as the second says.

    The third number is how many that makes: k, unless there are fewer entries other than zero.
    """
    key_bits = 8 * bits.itemsize - 1
    k = min(k, len(bits))
    if k <= 0:
        return np.int64(np.iinfo(bits.dtype).max), 0, 0
    key, open_bits, rank, sharing = _narrow(bits, np.int64(0), key_bits, k, max(k, _FEW))
    if open_bits > 0:
        pool = _keys_sharing(bits, key, open_bits, sharing)
        key, open_bits, rank, sharing = _narrow(pool, key, open_bits, rank, 0)
    if key == 0:
        return key, 0, k - rank
    return key, rank, k


@_jit
def _narrow(bits: Any, prefix: Any, open_bits: Any, rank: Any, few: Any) -> Any:
    """Learn the key of that rank (1 = largest) digit by digit, until at most ``few`` keys share what is known.

    ``prefix`` is the key without its ``open_bits`` lowest bits, and ``rank`` counts among the keys that share it.
    """
    magnitude = np.iinfo(bits.dtype).max
    sharing = len(bits)
    while open_bits > 0 and sharing > few:
        left_open = max(open_bits - _DIGIT_BITS, 0)
        # Four tables: neighbours often fall into one bucket, and would wait for each other's store.
        tables = np.zeros((4, 1 << (open_bits - left_open)), np.int64)
        last = tables.shape[1] - 1
        for i in range(len(bits)):
            key = bits[i] & magnitude
            if key >> open_bits == prefix:
                tables[i & 3, (key >> left_open) & last] += 1
        digit = last
        sharing = tables[:, digit].sum()
        while sharing < rank:
            rank -= sharing
            digit -= 1
            sharing = tables[:, digit].sum()
        prefix = (prefix << (open_bits - left_open)) | digit
        open_bits = left_open
    return prefix, open_bits, rank, sharing


@_jit
def _keys_sharing(bits: Any, prefix: Any, open_bits: Any, count: Any) -> Any:
    magnitude = np.iinfo(bits.dtype).max
    keys = np.empty(count, np.int64)
    n = 0
    for i in range(len(bits)):
        key = bits[i] & magnitude
        if key >> open_bits == prefix:
            keys[n] = key
            n += 1
    return keys


@_jit
def _take_dense(dense: Any, bits: Any, cut: Any, ties: Any, base: Any, indices: Any, values: Any) -> None:
    magnitude = np.iinfo(bits.dtype).max
    n = 0
    for i in range(len(bits)):
        key = bits[i] & magnitude
        if key >= cut:
            if key == cut:
                if ties == 0:
                    continue
                ties -= 1
            indices[n] = base + i
            values[n] = dense[i]
            n += 1


@_jit
def _split(indices: Any, values: Any, bits: Any, cut: Any, ties: Any, count: Any) -> Any:
    magnitude = np.iinfo(bits.dtype).max
    top_indices, rest_indices = _two_parts(indices, count)
    top_values, rest_values = _two_parts(values, count)
    n = 0
    for i in range(len(bits)):
        key = bits[i] & magnitude
        tie = key == cut and ties > 0
        ties -= tie
        if key > cut or tie:
            top_indices[n] = indices[i]
            top_values[n] = values[i]
            n += 1
        else:
            rest_indices[i - n] = indices[i]
            rest_values[i - n] = values[i]
    return top_indices, top_values, rest_indices, rest_values


@_jit
def _two_parts(like: Any, count: Any) -> Any:
    return np.empty(count, like.dtype), np.empty(len(like) - count, like.dtype)


@_jit
def _override_above(indices_a: Any, values_a: Any, indices_b: Any, values_b: Any, floor: Any) -> Any:
    """The first vector overridden by the second, without what lies below the floor."""
    indices, values = _room_for(indices_a, values_a, indices_b)
    i = j = n = 0
    while i < len(indices_a) or j < len(indices_b):
        if j == len(indices_b) or (i < len(indices_a) and indices_a[i] < indices_b[j]):
            index, value = indices_a[i], values_a[i]
            i += 1
        else:
            index, value = indices_b[j], values_b[j]
            i += i < len(indices_a) and indices_a[i] == index
            j += 1
        if abs(value) >= floor:
            indices[n] = index
            values[n] = value
            n += 1
    return indices[:n], values[:n]


# --- merges ---


@_jit
def _room_for(indices_a: Any, values_a: Any, indices_b: Any) -> Any:
    """Arrays for a union of indices, as large as it can get; what is never written to takes no memory."""
    most = len(indices_a) + len(indices_b)
    return np.empty(most, indices_a.dtype), np.empty(most, values_a.dtype)


@_jit
def _add(indices_a: Any, values_a: Any, indices_b: Any, values_b: Any) -> Any:
    indices, values = _room_for(indices_a, values_a, indices_b)
    # Which side is next is as good as random, and mispredicted branches would cost more than all the rest. So the loop
    # always adds two values, picked by comparison results from these pairs; -0.0 is neutral: x + -0.0 is x to the bit.
    nothing_or_a = np.full(2, -0.0, values.dtype)
    nothing_or_b = np.full(2, -0.0, values.dtype)
    i = j = n = 0
    while i < len(indices_a) and j < len(indices_b):
        index_a, index_b = indices_a[i], indices_b[j]
        in_a, in_b = int(index_a <= index_b), int(index_b <= index_a)
        nothing_or_a[1] = values_a[i]
        nothing_or_b[1] = values_b[j]
        indices[n] = min(index_a, index_b)
        values[n] = nothing_or_a[in_a] + nothing_or_b[in_b]
        i += in_a
        j += in_b
        n += 1
    n = _copy_tail(indices_a, values_a, i, indices, values, n)
    n = _copy_tail(indices_b, values_b, j, indices, values, n)
    return indices[:n], values[:n]


@_jit
def _copy_tail(from_indices: Any, from_values: Any, start: Any, indices: Any, values: Any, n: Any) -> Any:
    for i in range(start, len(from_indices)):
        indices[n] = from_indices[i]
        values[n] = from_values[i]
        n += 1
    return n


@_jit
def _overlay(over_indices: Any, over_values: Any, dense: Any, indices: Any, values: Any) -> Any:
    union, total = _room_for(over_indices, over_values, indices)
    i = n = 0
    for j in range(len(indices)):
        index = indices[j]
        while i < len(over_indices) and over_indices[i] < index:
            union[n] = over_indices[i]
            total[n] = over_values[i]
            i += 1
            n += 1
        union[n] = index
        if i < len(over_indices) and over_indices[i] == index:
            total[n] = over_values[i] + values[j]
            i += 1
        else:
            total[n] = dense[index] + values[j]
        n += 1
    n = _copy_tail(over_indices, over_values, i, union, total, n)
    return union[:n], total[:n]


@_jit
def _scatter_add(dense: Any, indices: Any, values: Any) -> None:
    for i in range(len(indices)):
        dense[indices[i]] += values[i]


@_jit
def _overwrite_where(dense: Any, wanted: Any, indices: Any, values: Any) -> None:
    i = j = 0
    while i < len(wanted) and j < len(indices):
        wish, index = wanted[i], indices[j]
        if wish == index:
            dense[index] = values[j]
        i += wish <= index
        j += index <= wish


@_jit
def _add_where(dense: Any, wanted: Any, indices: Any, values: Any) -> None:
    i = j = 0
    while i < len(wanted) and j < len(indices):
        wish, index = wanted[i], indices[j]
        if wish == index:
            dense[index] += values[j]
        i += wish <= index
        j += index <= wish


# --- packed indices ---


@_jit
def _unary_length(indices: Any, base: Any, bits: Any) -> Any:
    """Length in bits of the stream of quotients, or -1 if the indices do not increase."""
    length = len(indices)
    previous = base - 1
    for i in range(len(indices)):
        if indices[i] <= previous:
            return -1
        length += (indices[i] - previous - 1) >> bits
        previous = np.int64(indices[i])
    return length


@_jit
def _pack(indices: Any, base: Any, bits: Any, low: Any, high: Any) -> None:
    previous = base - 1
    low_at = high_at = 0
    for i in range(len(indices)):
        gap = indices[i] - previous - 1
        previous = np.int64(indices[i])
        if bits > 0:
            _put(low, low_at, np.uint64(gap & ((1 << bits) - 1)), bits)
            low_at += bits
        high_at += gap >> bits
        _put(high, high_at, np.uint64(1), 1)
        high_at += 1


@_jit
def _put(words: Any, at: Any, value: Any, bits: Any) -> None:
    word, offset = at >> 6, at & 63
    words[word] |= value << np.uint64(offset)
    if offset + bits > 64:
        words[word + 1] |= value >> np.uint64(64 - offset)


@_jit
def _get(words: Any, at: Any, bits: Any) -> Any:
    word, offset = at >> 6, at & 63
    value = words[word] >> np.uint64(offset)
    if offset + bits > 64:
        value |= words[word + 1] << np.uint64(64 - offset)
    return np.int64(value & np.uint64((1 << bits) - 1))


@_jit
def _unpack(low: Any, high: Any, base: Any, bits: Any, indices: Any) -> Any:
    """Fills ``indices`` as far as ``high`` goes, and says how far that is, and what the last one is in 64 bits."""
    previous = base - 1
    after_last_one = 0
    n = 0
    for word in range(len(high)):
        ones = high[word]
        while ones != 0 and n < len(indices):
            at = 64 * word + _lowest_one(ones)
            ones &= ones - np.uint64(1)
            gap = (at - after_last_one) << bits
            if bits > 0:
                gap |= _get(low, n * bits, bits)
            after_last_one = at + 1
            previous += gap + 1
            indices[n] = previous
            n += 1
    return n, previous


KERNELS = NumbaKernels()
