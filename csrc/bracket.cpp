#include "bracket.hpp"

#include "lanes.hpp"

namespace spardl {
namespace {

template <class T>
Sides take_portable(const Bracket<T>& bracket, const T* values, std::int64_t count, T* out) {
    Sides sides{0, 0};
    for (std::int64_t i = 0; i < count; ++i) {
        const T value = values[i];
        const Key<T> key = magnitude(value);
        out[sides.inside] = value;  // and counted only if it stays: that costs no branch
        sides.inside += key - bracket.low <= bracket.high - bracket.low;
        sides.above += key > bracket.high;
    }
    return sides;
}

#if SPARDL_X86

SPARDL_AVX2 Sides take_avx2(const Bracket<float>& bracket, const float* values, std::int64_t count, float* out) {
    const __m256i low = _mm256_set1_epi32(static_cast<std::int32_t>(bracket.low));
    const __m256i high = _mm256_set1_epi32(static_cast<std::int32_t>(bracket.high));
    const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
    const std::int64_t whole = count / 8 * 8;
    Sides sides{0, 0};
    for (std::int64_t i = 0; i < whole; i += 8) {
        const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
        const __m256i key = _mm256_and_si256(value, magnitude_bits);
        const std::uint32_t above = lanes_set(_mm256_cmpgt_epi32(key, high));
        const std::uint32_t below = lanes_set(_mm256_cmpgt_epi32(low, key));
        const std::uint32_t inside = ~(above | below) & 0xffu;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + sides.inside), gathered_lanes(inside, value));
        sides.inside += __builtin_popcount(inside);
        sides.above += __builtin_popcount(above);
    }
    const Sides rest = take_portable(bracket, values + whole, count - whole, out + sides.inside);
    return {sides.inside + rest.inside, sides.above + rest.above};
}

#endif

}  // namespace

template <>
Sides take_inside(const Bracket<float>& bracket, const float* values, std::int64_t count, float* out) {
#if SPARDL_X86
    if (use_avx2()) return take_avx2(bracket, values, count, out);
#endif
    return take_portable(bracket, values, count, out);
}

template <>
Sides take_inside(const Bracket<double>& bracket, const double* values, std::int64_t count, double* out) {
    return take_portable(bracket, values, count, out);
}

}  // namespace spardl
