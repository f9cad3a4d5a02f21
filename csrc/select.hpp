// Exact top-k: find where to cut, then take entries in index order.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "accumulate.hpp"
#include "bracket.hpp"
#include "compact.hpp"
#include "magnitude.hpp"
#include "pool.hpp"

namespace spardl {

// Take every entry whose key is above `key`, and the first `ties` of those equal to it: `kept` in all.
template <class T>
struct Cut {
    Key<T> key;
    std::int64_t ties;
    std::int64_t kept;
    bool every_tie = false;  // known to be all that are equal to `key`
};

namespace detail {

constexpr int digit_bits = 11;

// Which digit the `wanted`-th largest key has, how many keys share it, and which of those is wanted.
struct Bucket {
    std::size_t digit;
    std::int64_t sharing;
    std::int64_t wanted;
};

// `each(visit)` calls visit(key) for every key still in question.
template <class K, class Each>
Bucket find_bucket(Each each, int shift, std::int64_t wanted) {
    constexpr K mask = (K{1} << digit_bits) - 1;
    // Several tables: neighbouring entries often fall into one bucket, and would wait for each other's store.
    std::array<std::array<std::int64_t, std::size_t{1} << digit_bits>, 2> table{};
    std::size_t turn = 0;
    each([&](K key) { ++table[turn++ & 1][(key >> shift) & mask]; });
    std::size_t digit = table[0].size();
    for (;;) {
        --digit;
        const std::int64_t here = table[0][digit] + table[1][digit];
        if (here >= wanted) return {digit, here, wanted};
        wanted -= here;
    }
}

}  // namespace detail

// The `wanted`-th largest of `keys` (1-based), by radix descent in place; `shift` is how many low bits may differ.
template <class K>
K nth_largest(K* keys, std::int64_t count, std::int64_t wanted, int shift) {
    while (count > 64 && shift > 0) {
        const int next = std::max(0, shift - detail::digit_bits);
        const auto each = [&](auto visit) {
            for (std::int64_t i = 0; i < count; ++i) visit(keys[i]);
        };
        const auto bucket = detail::find_bucket<K>(each, next, wanted);
        constexpr K mask = (K{1} << detail::digit_bits) - 1;
        std::int64_t n = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const K key = keys[i];
            keys[n] = key;
            n += ((key >> next) & mask) == bucket.digit;
        }
        count = bucket.sharing;
        wanted = bucket.wanted;
        shift = next;
    }
    std::nth_element(keys, keys + (wanted - 1), keys + count, std::greater<K>());
    return keys[wanted - 1];
}

// The key of the k-th largest: digit by digit from the top. While many entries share the digits so far they are read
// again from `values`; as soon as they are few, their keys are copied and the descent goes on among those.
template <class T>
Key<T> kth_key(const T* values, std::int64_t count, std::int64_t k) {
    using K = Key<T>;
    const std::int64_t few = std::max<std::int64_t>(4096, k);
    K prefix = 0;
    int shift = KeyOf<T>::bits;
    std::int64_t sharing = count, wanted = k;
    while (sharing > few && shift > 0) {
        const int next = std::max(0, shift - detail::digit_bits);
        const auto each = [&](auto visit) {
            for (std::int64_t i = 0; i < count; ++i) {
                const K key = magnitude(values[i]);
                if (key >> shift == prefix) visit(key);
            }
        };
        const auto bucket = detail::find_bucket<K>(each, next, wanted);
        // The last digit overlaps the prefix; only its fresh bits are appended.
        const int fresh = shift - next;
        prefix = (prefix << fresh) | (static_cast<K>(bucket.digit) & ((K{1} << fresh) - 1));
        shift = next;
        sharing = bucket.sharing;
        wanted = bucket.wanted;
    }
    if (shift == 0) return prefix;
    const Scratch<K> keys(sharing + 1);
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const K key = magnitude(values[i]);
        keys[n] = key;
        n += key >> shift == prefix;
    }
    return nth_largest(keys.data(), sharing, wanted, shift);
}

template <class T>
Cut<T> find_cut(const T* values, std::int64_t count, std::int64_t k) {
    const auto count_above = [&](Key<T> key) {
        std::int64_t n = 0;
        for (std::int64_t i = 0; i < count; ++i) n += magnitude(values[i]) > key;
        return n;
    };
    if (k <= 0) return {static_cast<Key<T>>(-1), 0, 0};
    const Key<T> key = count <= k ? 0 : kth_key(values, count, k);
    const std::int64_t above = count_above(key);
    if (key == 0) return {0, 0, above};  // a zero is never selected
    return {key, k - above, k};
}

// The same where all keys are at least `least` > 0, as those of candidates are: looks closely only at those that
// samples do not rule out.
template <class T>
Cut<T> find_cut_above(const T* values, std::int64_t count, std::int64_t k, Key<T> least) {
    using K = Key<T>;
    if (k <= 0) return {static_cast<K>(-1), 0, 0};
    if (count <= k) return {least, 0, count, true};
    const Scratch<T> near(count + bracket_slack);
    const T* from = values;
    std::int64_t left = count, before, wanted = k;
    do {
        const Sides sides = take_inside(Bracket<T>(from, left, wanted, least), from, left, near.data());
        wanted -= sides.above;
        if (wanted <= 0 || wanted > sides.inside) return find_cut(values, count, k);
        from = near.data();
        before = left;
        left = sides.inside;
    } while (left >= Bracket<T>::many && left < before);
    const Scratch<K> keys(left);
    std::transform(near.data(), near.data() + left, keys.data(), magnitude<T>);
    K* const kth = keys.data() + (wanted - 1);
    std::nth_element(keys.data(), kth, keys.data() + left, std::greater<K>());
    const K key = *kth;
    const auto larger = std::count_if(keys.data(), kth, [=](K other) { return other > key; });
    const auto equal = std::count(keys.data(), keys.data() + left, key);
    return {key, wanted - larger, k, wanted - larger == equal};
}

// Decides entry by entry, in index order, so that ties go to the lower index.
template <class T>
class Cutter {
 public:
    explicit Cutter(const Cut<T>& cut) : key_(cut.key), ties_(cut.ties) {}
    bool takes(T value) {
        const Key<T> key = magnitude(value);
        const bool tie = (key == key_) & (ties_ > 0);
        ties_ -= tie;
        return (key > key_) | tie;
    }

 private:
    Key<T> key_;
    std::int64_t ties_;
};

// Copies the entries that the cut takes. The outputs need `compact_slack` slots more than `cut.kept`.
template <class T, class IndexOf, class I>
void take_cut(const T* values, std::int64_t count, const Cut<T>& cut, IndexOf index_of, I* out_indices, T* out_values) {
    Cutter<T> cutter(cut);
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < count && n < cut.kept; ++i) {
        out_indices[n] = static_cast<I>(index_of(i));
        out_values[n] = values[i];
        n += cutter.takes(values[i]);
    }
}

template <class T, class I>
void take_cut(const I* indices, const T* values, std::int64_t count, const Cut<T>& cut, I* out_indices, T* out_values) {
    if (cut.every_tie) {
        compact(indices, values, count, cut.key, out_indices, out_values);
    } else {
        take_cut(values, count, cut, [=](std::int64_t i) { return indices[i]; }, out_indices, out_values);
    }
}

// A floor that somewhat more than k entries of `dense` should reach, from a regular sample; 0 if it cannot tell.
template <class T>
T guess_floor(const T* dense, std::int64_t size, std::int64_t k) {
    constexpr std::int64_t samples = 8192;
    if (size < 8 * samples || k <= 0) return T{0};
    const std::int64_t stride = (size / samples) | 1;  // odd: gradients are periodic in powers of two
    const std::int64_t total = (size + stride - 1) / stride;
    const Scratch<Key<T>> keys(total);
    for (std::int64_t i = 0; i < total; ++i) keys[i] = magnitude(dense[i * stride]);
    const double expected = static_cast<double>(k) * static_cast<double>(total) / static_cast<double>(size);
    // Four standard deviations of the sample's count to spare, so that a miss is rare.
    const auto rank = static_cast<std::int64_t>(1.1 * expected + 4 * std::sqrt(expected)) + 8;
    if (rank >= total) return T{0};
    return from_key<T>(nth_largest(keys.data(), total, rank, KeyOf<T>::bits));
}

// The k largest of a dense block; the outputs have room for k + compact_slack. Returns how many there are. Tries a
// guessed floor and one vectorised pass first; whatever the data, the radix descent over the whole block has the last
// word.
template <class T, class I>
std::int64_t topk_dense(const T* dense, std::int64_t size, std::int64_t k, std::int64_t base, I* indices, T* values) {
    k = std::min(k, size);
    const T floor = guess_floor(dense, size, k);
    if (floor > 0) {
        const std::int64_t room = 4 * k;
        const Scratch<I> near_indices(room);
        const Scratch<T> near_values(room);
        const std::int64_t found =
            collect_range(dense, size, base, floor, near_indices.data(), near_values.data(), room);
        if (found >= k && found <= room) {
            const Cut<T> cut = find_cut_above(near_values.data(), found, k, magnitude(floor));
            take_cut(near_indices.data(), near_values.data(), found, cut, indices, values);
            return cut.kept;
        }
    }
    const Cut<T> cut = find_cut(dense, size, k);
    take_cut(dense, size, cut, [&](std::int64_t i) { return base + i; }, indices, values);
    return cut.kept;
}

}  // namespace spardl
