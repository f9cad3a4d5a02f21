#include "compact.hpp"

#include "lanes.hpp"

namespace spardl {
namespace {

// Writing first and advancing only when the entry stays costs no branch, and which entries stay is as good as random.
template <class T, class I>
std::int64_t compact_portable(const I* indices, const T* values, std::int64_t count, Key<T> least, I* out_indices,
                              T* out_values) {
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        out_indices[n] = indices[i];
        out_values[n] = values[i];
        n += magnitude(values[i]) >= least;
    }
    return n;
}

#if SPARDL_X86

SPARDL_AVX2 std::int64_t compact_avx2(const std::int32_t* indices, const float* values, std::int64_t count,
                                      std::uint32_t least, std::int32_t* out_indices, float* out_values) {
    const __m256i below = _mm256_set1_epi32(static_cast<std::int32_t>(least) - 1);
    const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
    const std::int64_t whole = count / 8 * 8;
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < whole; i += 8) {
        const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
        const __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices + i));
        const __m256i stays = _mm256_cmpgt_epi32(_mm256_and_si256(value, magnitude_bits), below);
        const std::uint32_t set = lanes_set(stays);
        store_lanes(set, index, value, out_indices + n, out_values + n);
        n += __builtin_popcount(set);
    }
    return n + compact_portable(indices + whole, values + whole, count - whole, least, out_indices + n, out_values + n);
}

#endif

}  // namespace

template <class T, class I>
std::int64_t compact(const I* indices, const T* values, std::int64_t count, Key<T> least, I* out_indices,
                     T* out_values) {
#if SPARDL_X86
    if constexpr (sizeof(T) == 4 && sizeof(I) == 4) {
        if (use_avx2()) return compact_avx2(indices, values, count, least, out_indices, out_values);
    }
#endif
    return compact_portable(indices, values, count, least, out_indices, out_values);
}

#define SPARDL_INSTANTIATE(T, I) template std::int64_t compact<T, I>(const I*, const T*, std::int64_t, Key<T>, I*, T*);
SPARDL_INSTANTIATE(float, std::int32_t)
SPARDL_INSTANTIATE(float, std::int64_t)
SPARDL_INSTANTIATE(double, std::int32_t)
SPARDL_INSTANTIATE(double, std::int64_t)

}  // namespace spardl
