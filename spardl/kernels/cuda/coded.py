"""The indices of several blocks to and from bit streams: the launches of ``coding``."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spardl.kernels.api import Indices, Packable, Packed
from spardl.kernels.checks import require_entries, require_within, require_words
from spardl.kernels.cuda import coding
from spardl.kernels.cuda.batch import in_one
from spardl.kernels.cuda.namespace import DeviceArray, Namespace
from spardl.kernels.cuda.segments import begins_of, make_table, upload


def pack_all(on: Namespace, blocks: Sequence[Packable]) -> list[tuple[DeviceArray, DeviceArray]]:
    """Waits for how long the second streams are."""
    vectors, bases, bits = zip(*blocks, strict=True)
    counts = [len(indices) for indices in vectors]
    begins = begins_of(counts)
    codes = (counts, bases, bits, [0] * len(blocks))  # nothing is read
    low_words = [_words(count * of) for count, of in zip(counts, bits, strict=True)]
    low_begins = begins_of(low_words)
    entry_rows, entry_tiles = _table(on, begins, begins, counts, *codes)
    low_rows, low_tiles = _table(on, begins, low_begins, low_words, *codes)
    entries, lows = upload(on, entry_rows, low_rows)
    indices, low = in_one(on, vectors), on.empty(sum(low_words), np.uint64)
    lengths, totals = on.empty(sum(counts), np.int64), on.zeros(len(blocks), np.int64)
    on.launch(coding.pack_low, low_tiles, lows, indices, low)
    on.launch(coding.unary_lengths, entry_tiles, entries, indices, lengths, totals)
    ends = on.running_sum(lengths)
    high_words = [_words(total) for total in on.to_host(totals)[0].tolist()]
    high_begins, high = begins_of(high_words), on.empty(sum(high_words), np.uint64)
    high_rows, high_tiles = _table(on, begins, high_begins, high_words, *codes)
    on.launch(coding.pack_high, high_tiles, *upload(on, high_rows), ends, high)
    return list(zip(_parts(low, low_begins, low_words), _parts(high, high_begins, high_words), strict=True))


def unpack_all(
    on: Namespace, blocks: Sequence[Packed], index_dtype: npt.DTypeLike, limits: Sequence[int]
) -> list[Indices]:
    """Waits to hear whether all entries were there, and below their limits. Until then they may be anything."""
    lows, highs, counts, bases, bits = zip(*blocks, strict=True)
    for low, count, of in zip(lows, counts, bits, strict=True):
        require_words(len(low), count, of)
    begins = begins_of(counts)
    ends = [min(limit, int(np.iinfo(index_dtype).max) + 1) for limit in limits]
    codes = (counts, bases, bits, ends)
    words = in_one(on, highs).view(np.uint32)
    per_block = [2 * len(high) for high in highs]
    word_rows, word_tiles = _table(on, begins_of(per_block), begins, per_block, *codes)
    entry_rows, entry_tiles = _table(on, begins_of([len(low) for low in lows]), begins, counts, *codes)
    by_word, by_entry = upload(on, word_rows, entry_rows)
    ones, places = on.empty(len(words), np.int64), on.zeros(sum(counts), np.int64)
    told = on.zeros(2 * len(blocks), np.int64)
    found, beyond = told[: len(blocks)], told[len(blocks) :]
    on.launch(coding.count_ones, -(-len(words) // on.threads), words, ones)
    on.launch(coding.place_ones, word_tiles, by_word, words, on.running_sum(ones), places, found)
    rests = on.empty(sum(counts), np.int64)
    indices: Indices = on.empty(sum(counts), index_dtype)
    on.launch(coding.read_low, entry_tiles, by_entry, in_one(on, lows), rests)
    on.launch(coding.join_gaps, entry_tiles, by_entry, places, on.running_sum(rests), indices, beyond)
    numbers = on.to_host(told)[0].tolist()
    for there, is_beyond, count, limit in zip(
        numbers[: len(blocks)], numbers[len(blocks) :], counts, limits, strict=True
    ):
        require_entries(there, count)
        require_within(not is_beyond, limit)
    return _parts(indices, begins, counts)


def _table(
    on: Namespace, begins: Sequence[int], outs: Sequence[int], lengths: Sequence[int], *codes: Sequence[int]
) -> tuple[npt.NDArray[np.int64], int]:
    return make_table([-(-length // on.threads) for length in lengths], begins, outs, lengths, *codes)


def _parts(array: DeviceArray, begins: Sequence[int], lengths: Sequence[int]) -> list[DeviceArray]:
    return [array[begin : begin + length] for begin, length in zip(begins, lengths, strict=True)]


def _words(bits: int) -> int:
    return -(-bits // 64)
