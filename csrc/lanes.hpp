// Some of eight lanes, moved together: what AVX2 has no instruction for.
#pragma once

#include "simd.hpp"

#if SPARDL_X86

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace spardl {

// For every set of lanes, their numbers in order.
inline constexpr auto lanes_of = [] {
    std::array<std::array<std::uint8_t, 8>, 256> table{};
    for (unsigned set = 0; set < 256; ++set) {
        std::size_t n = 0;
        for (unsigned lane = 0; lane < 8; ++lane) {
            if ((set >> lane & 1) != 0) table[set][n++] = static_cast<std::uint8_t>(lane);
        }
    }
    return table;
}();

// The lanes of `set`, one behind the other; what comes behind is of no meaning.
SPARDL_AVX2 inline __m256i gathered_lanes(std::uint32_t set, __m256i eight) {
    const auto* const numbers = reinterpret_cast<const __m128i*>(lanes_of[set].data());
    return _mm256_permutevar8x32_epi32(eight, _mm256_cvtepu8_epi32(_mm_loadl_epi64(numbers)));
}

// In which lanes a comparison was true.
SPARDL_AVX2 inline std::uint32_t lanes_set(__m256i compared) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(compared)));
}

// Writes the entries in those lanes of `set`; of eight entries in any case.
SPARDL_AVX2 inline void store_lanes(std::uint32_t set, __m256i index, __m256i value, std::int32_t* out_indices,
                                    float* out_values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out_values), gathered_lanes(set, value));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out_indices), gathered_lanes(set, index));
}

}  // namespace spardl

#endif
