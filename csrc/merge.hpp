// Sorted sparse vectors: sums and overrides by two-pointer merges.
//
// Which side is next is as good as random, so the loops advance by comparison results instead of branching on them; and
// since each step then waits for the one before, several stretches of the vectors are merged in turns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "magnitude.hpp"
#include "pool.hpp"
#include "simd.hpp"

#if SPARDL_X86
#include <emmintrin.h>
#endif

namespace spardl {

template <class T, class I>
struct View {
    const I* indices;
    const T* values;
    std::int64_t size;
};

// Prefetch distance for gathers at increasing but scattered places of a dense array. Into the second cache: more
// fetches may be under way to that than to the first, and how many are is all that counts here.
constexpr std::int64_t gather_ahead = 64;

template <class T, class I>
inline void prefetch_ahead(const T* dense, const I* indices, std::int64_t at, std::int64_t size) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(dense + indices[std::min(at + gather_ahead, size - 1)], 0, 2);
#else
    (void)dense, (void)indices, (void)at, (void)size;
#endif
}

// x if the flag is set, else y. By masks: a compiler may turn ?: into the branch that is to be avoided.
template <class T>
inline T pick(bool flag, T x, T y) {
    using K = Key<T>;
    const K keep = K{0} - static_cast<K>(flag);
    return from_key<T>((bits_of(x) & keep) | (bits_of(y) & ~keep));
}

#if SPARDL_X86
// The same where floats are anyway; every processor of this kind has these instructions.
inline float pick(bool flag, float x, float y) {
    const __m128 keep = _mm_castsi128_ps(_mm_cvtsi32_si128(-static_cast<int>(flag)));
    return _mm_cvtss_f32(_mm_or_ps(_mm_and_ps(keep, _mm_set_ss(x)), _mm_andnot_ps(keep, _mm_set_ss(y))));
}
#endif

// Where two vectors differ in having an index, -0.0 stands in: x + -0.0 is x to the bit, for x = ±0.0 too.
template <class T>
inline T or_neutral(bool flag, T x) {
    return pick(flag, x, T(-0.0));
}

// What a merged entry's value is: of a alone, of b alone, or decided by the flags from_a and from_b; and whether it
// stays.
template <class T, class I>
struct Sum {
    View<T, I> a, b;
    bool keeps(T) const { return true; }
    T only_a(std::int64_t i) const { return a.values[i]; }
    T only_b(std::int64_t j) const { return b.values[j]; }
    T either(std::int64_t i, std::int64_t j, bool from_a, bool from_b) const {
        return or_neutral(from_a, a.values[i]) + or_neutral(from_b, b.values[j]);
    }
};

// (dense overridden by a) + b.
template <class T, class I>
struct Overlay {
    View<T, I> a, b;
    const T* dense;
    bool keeps(T) const { return true; }
    T only_a(std::int64_t i) const { return a.values[i]; }
    T only_b(std::int64_t j) const {
        prefetch_ahead(dense, b.indices, j, b.size);
        return dense[b.indices[j]] + b.values[j];
    }
    T either(std::int64_t i, std::int64_t j, bool from_a, bool from_b) const {
        prefetch_ahead(dense, b.indices, j, b.size);
        return pick(from_a, a.values[i], dense[b.indices[j]]) + or_neutral(from_b, b.values[j]);
    }
};

// a overridden by b, without what lies below the floor.
template <class T, class I>
struct Override {
    View<T, I> a, b;
    T floor;
    bool keeps(T value) const { return (value >= floor) | (-value >= floor); }
    T only_a(std::int64_t i) const { return a.values[i]; }
    T only_b(std::int64_t j) const { return b.values[j]; }
    T either(std::int64_t i, std::int64_t j, bool, bool from_b) const { return pick(from_b, b.values[j], a.values[i]); }
};

namespace detail {

// A stretch of the merge: entries i..i_end of a with j..j_end of b, written from `begin` on, now to `out`.
struct Strand {
    std::int64_t i, i_end, j, j_end, begin, out;
    bool both_left() const { return i < i_end && j < j_end; }
    // How many steps there are at least until one side is at its end.
    std::int64_t sure_steps() const { return std::min(i_end - i, j_end - j); }
};

// As many as have room in the processor's registers.
using Strands = std::array<Strand, 2>;

// Cuts a in half and b at the same index.
template <class I>
Strands cut_strands(const I* a, std::int64_t a_size, const I* b, std::int64_t b_size) {
    const std::int64_t i = a_size / 2;
    const std::int64_t j = i == 0 ? 0 : std::upper_bound(b, b + b_size, a[i - 1]) - b;
    return {Strand{0, i, 0, j, 0, 0}, Strand{i, a_size, j, b_size, i + j, i + j}};
}

// Steps in turns, as long as both strands have entries of both sides.
template <class Step>
inline void alternate(Strands& strands, Step step) {
    auto [first, second] = strands;
    std::int64_t steps;
    while ((steps = std::min(first.sure_steps(), second.sure_steps())) > 0) {
        for (; steps > 0; --steps) {
            step(first);
            step(second);
        }
    }
    strands = {first, second};
}

// Writes the entry, and counts it only if it stays: that costs no branch.
template <class T, class I, class Rule>
inline void put(const Rule& rule, Strand& s, I* indices, T* values, I index, T value) {
    indices[s.out] = index;
    values[s.out] = value;
    s.out += rule.keeps(value);
}

template <class T, class I, class Rule>
inline void step(const Rule& rule, Strand& s, I* indices, T* values) {
    const I ia = rule.a.indices[s.i], ib = rule.b.indices[s.j];
    const bool from_a = ia <= ib, from_b = ib <= ia;
    put(rule, s, indices, values, std::min(ia, ib), rule.either(s.i, s.j, from_a, from_b));
    s.i += from_a;
    s.j += from_b;
}

template <class T, class I, class Rule>
void finish(const Rule& rule, Strand& s, I* indices, T* values) {
    while (s.both_left()) step(rule, s, indices, values);
    for (; s.i < s.i_end; ++s.i) put(rule, s, indices, values, rule.a.indices[s.i], rule.only_a(s.i));
    for (; s.j < s.j_end; ++s.j) put(rule, s, indices, values, rule.b.indices[s.j], rule.only_b(s.j));
}

// Common and dropped entries left a gap between the strands. Returns how many entries there are.
template <class T, class I>
std::int64_t close_gap(const Strands& strands, I* indices, T* values) {
    const auto& [first, second] = strands;
    std::copy(indices + second.begin, indices + second.out, indices + first.out);
    std::copy(values + second.begin, values + second.out, values + first.out);
    return first.out + (second.out - second.begin);
}

}  // namespace detail

// Merges rule.a and rule.b; the outputs have room for both sizes. Returns how many entries stay.
template <class T, class I, class Rule>
std::int64_t merge(const Rule& rule, I* indices, T* values) {
    auto strands = detail::cut_strands(rule.a.indices, rule.a.size, rule.b.indices, rule.b.size);
    const Rule here = rule;  // what it points to is not what is written
    detail::alternate(strands, [=](detail::Strand& s) { detail::step(here, s, indices, values); });
    for (auto& s : strands) detail::finish(rule, s, indices, values);
    return detail::close_gap(strands, indices, values);
}

// The same for vectors that have no index in common: from both ends at once, as the number of entries is known.
template <class T, class I>
void merge_disjoint(const View<T, I>& a, const View<T, I>& b, I* indices, T* values) {
    std::int64_t i = 0, j = 0, first = 0;
    std::int64_t p = a.size - 1, q = b.size - 1, last = a.size + b.size - 1;
    while (i < p && j < q) {
        const I front_a = a.indices[i], front_b = b.indices[j], back_a = a.indices[p], back_b = b.indices[q];
        const bool a_first = front_a<front_b, a_last = back_a> back_b;
        indices[first] = std::min(front_a, front_b);
        values[first++] = pick(a_first, a.values[i], b.values[j]);
        indices[last] = std::max(back_a, back_b);
        values[last--] = pick(a_last, a.values[p], b.values[q]);
        i += a_first;
        j += !a_first;
        p -= a_last;
        q -= !a_last;
    }
    while (i <= p || j <= q) {
        const bool a_first = j > q || (i <= p && a.indices[i] < b.indices[j]);
        indices[first] = a_first ? a.indices[i] : b.indices[j];
        values[first++] = a_first ? a.values[i] : b.values[j];
        i += a_first;
        j += !a_first;
    }
}

}  // namespace spardl
