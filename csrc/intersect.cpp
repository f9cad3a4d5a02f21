#include "intersect.hpp"

#include <algorithm>

#include "lanes.hpp"

namespace spardl {
namespace {

// Whatever is looked at is written, and counted only if it is common: that costs no branch. Several stretches are gone
// through in turns, as in merge.
template <class T, class I>
std::int64_t common_portable(const I* wanted, std::int64_t wanted_size, const View<T, I>& b, I* indices, T* values) {
    auto strands = detail::cut_strands(wanted, wanted_size, b.indices, b.size);
    for (auto& s : strands) s.begin = s.out = s.i;
    const auto step = [=](detail::Strand& s) {
        const I iw = wanted[s.i], ib = b.indices[s.j];
        indices[s.out] = ib;
        values[s.out] = b.values[s.j];
        s.out += iw == ib;
        s.i += iw <= ib;
        s.j += ib <= iw;
    };
    detail::alternate(strands, step);
    for (auto& s : strands) {
        while (s.both_left()) step(s);
    }
    return detail::close_gap(strands, indices, values);
}

template <class T, class I>
std::int64_t other_portable(const I* taken, std::int64_t taken_size, const View<T, I>& b, I* indices, T* values) {
    std::int64_t i = 0, n = 0;
    for (std::int64_t j = 0; j < b.size; ++j) {
        while (i < taken_size && taken[i] < b.indices[j]) ++i;
        indices[n] = b.indices[j];
        values[n] = b.values[j];
        n += i == taken_size || taken[i] != b.indices[j];
    }
    return n;
}

#if SPARDL_X86

using Narrow = View<float, std::int32_t>;

// How far eight against eight got: entries i.. of a and j.. of b are left, but for those of b's next eight in
// `matched`.
struct Reached {
    std::int64_t i, j, written;
    std::uint32_t matched;
};

// Every index of a is compared with eight of b at once, eight times, and the side that ends first goes on. The bits of
// b's eight are collected until it is b that goes on; then those lanes are written that `of_interest` makes of them.
template <class OfInterest>
SPARDL_AVX2 inline Reached eight_by_eight(const std::int32_t* a, std::int64_t a_size, const Narrow& b,
                                          OfInterest of_interest, std::int32_t* indices, float* values) {
    Reached r{0, 0, 0, 0};
    while (r.i + 8 <= a_size && r.j + 8 <= b.size) {
        const __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.indices + r.j));
        const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.values + r.j));
        __m256i equal = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int lane = 0; lane < 8; ++lane) {
            equal = _mm256_or_si256(equal, _mm256_cmpeq_epi32(index, _mm256_set1_epi32(a[r.i + lane])));
        }
        r.matched |= lanes_set(equal);
        // Written in any case and counted when b goes on: which side does is as good as random, and a branch on it
        // dear.
        const std::uint32_t lanes = of_interest(r.matched);
        store_lanes(lanes, index, value, indices + r.written, values + r.written);
        const std::int32_t last_a = a[r.i + 7], last_b = b.indices[r.j + 7];
        const bool done = last_b <= last_a;
        r.written += done ? __builtin_popcount(lanes) : 0;
        r.matched = done ? 0 : r.matched;
        r.j += done ? 8 : 0;
        r.i += last_a <= last_b ? 8 : 0;
    }
    return r;
}

SPARDL_AVX2 std::int64_t common_avx2(const std::int32_t* wanted, std::int64_t wanted_size, const Narrow& b,
                                     std::int32_t* indices, float* values) {
    const auto as_matched = [](std::uint32_t matched) { return matched; };
    const Reached r = eight_by_eight(wanted, wanted_size, b, as_matched, indices, values);
    // The last ones matched are written already, and below all that is still to be compared.
    const std::int64_t n = r.written + __builtin_popcount(r.matched);
    const Narrow rest{b.indices + r.j, b.values + r.j, b.size - r.j};
    return n + common_portable(wanted + r.i, wanted_size - r.i, rest, indices + n, values + n);
}

SPARDL_AVX2 std::int64_t other_avx2(const std::int32_t* taken, std::int64_t taken_size, const Narrow& b,
                                    std::int32_t* indices, float* values) {
    const auto unmatched = [](std::uint32_t matched) { return ~matched & 0xffu; };
    const Reached r = eight_by_eight(taken, taken_size, b, unmatched, indices, values);
    std::int64_t n = r.written, j = r.j;
    for (std::uint32_t matched = r.matched; matched != 0; matched >>= 1, ++j) {
        if ((matched & 1) == 0) {  // below the next matched one, and therefore below all of `taken` that is left
            indices[n] = b.indices[j];
            values[n++] = b.values[j];
        }
    }
    const Narrow rest{b.indices + j, b.values + j, b.size - j};
    return n + other_portable(taken + r.i, taken_size - r.i, rest, indices + n, values + n);
}

#endif

}  // namespace

template <class T, class I>
std::int64_t common_entries(const I* wanted, std::int64_t wanted_size, const View<T, I>& b, I* indices, T* values) {
#if SPARDL_X86
    if constexpr (sizeof(T) == 4 && sizeof(I) == 4) {
        if (use_avx2()) return common_avx2(wanted, wanted_size, b, indices, values);
    }
#endif
    return common_portable(wanted, wanted_size, b, indices, values);
}

template <class T, class I>
std::int64_t other_entries(const I* taken, std::int64_t taken_size, const View<T, I>& b, I* indices, T* values) {
#if SPARDL_X86
    if constexpr (sizeof(T) == 4 && sizeof(I) == 4) {
        if (use_avx2()) return other_avx2(taken, taken_size, b, indices, values);
    }
#endif
    return other_portable(taken, taken_size, b, indices, values);
}

#define SPARDL_INSTANTIATE(T, I)                                                                   \
    template std::int64_t common_entries<T, I>(const I*, std::int64_t, const View<T, I>&, I*, T*); \
    template std::int64_t other_entries<T, I>(const I*, std::int64_t, const View<T, I>&, I*, T*);
SPARDL_INSTANTIATE(float, std::int32_t)
SPARDL_INSTANTIATE(float, std::int64_t)
SPARDL_INSTANTIATE(double, std::int32_t)
SPARDL_INSTANTIATE(double, std::int64_t)

}  // namespace spardl
