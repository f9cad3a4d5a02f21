#include "extent.hpp"

#include <algorithm>
#include <array>

#include "simd.hpp"

#if SPARDL_X86
#include <immintrin.h>
#endif

namespace spardl {
namespace {

template <class T>
Extent<T> extent_portable(const T* values, std::int64_t count, Extent<T> so_far) {
    for (std::int64_t i = 0; i < count; ++i) {
        const Key<T> key = magnitude(values[i]);
        so_far.least = std::min(so_far.least, key);
        so_far.largest = std::max(so_far.largest, key);
    }
    return so_far;
}

#if SPARDL_X86

SPARDL_AVX2 Extent<float> extent_avx2(const float* values, std::int64_t count) {
    const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
    const std::int64_t whole = count / 8 * 8;
    __m256i least = magnitude_bits, largest = _mm256_setzero_si256();
    for (std::int64_t i = 0; i < whole; i += 8) {
        const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
        const __m256i key = _mm256_and_si256(value, magnitude_bits);
        least = _mm256_min_epu32(least, key);
        largest = _mm256_max_epu32(largest, key);
    }
    alignas(32) std::array<std::uint32_t, 8> low, high;
    _mm256_store_si256(reinterpret_cast<__m256i*>(low.data()), least);
    _mm256_store_si256(reinterpret_cast<__m256i*>(high.data()), largest);
    const Extent<float> found{*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
    return extent_portable(values + whole, count - whole, found);
}

#endif

}  // namespace

template <>
Extent<float> extent(const float* values, std::int64_t count) {
#if SPARDL_X86
    if (use_avx2()) return extent_avx2(values, count);
#endif
    return extent_portable(values, count, Extent<float>{});
}

template <>
Extent<double> extent(const double* values, std::int64_t count) {
    return extent_portable(values, count, Extent<double>{});
}

}  // namespace spardl
