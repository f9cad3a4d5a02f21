// Gaps between sorted indices as Rice codes in two streams of 64-bit words: low bits packed, the rest in unary.
//
// At density x the gaps are close to geometric, for which Rice codes are within a few hundredths of a bit of the
// entropy. Two streams decode without a serial chain of bit positions: entry i's low bits stand at i * bits, and its
// unary part ends at the i-th one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "simd.hpp"

#if SPARDL_X86
#include <immintrin.h>
#endif

namespace spardl {

constexpr int bits_in_any_load = 57;  // of eight bytes, from whatever bit of the first on
// No index reaches this.
constexpr std::int64_t index_limit = std::int64_t{1} << 62;

inline std::int64_t words_for(std::int64_t bits) { return bits / 64 + (bits % 64 != 0); }

// Whether the ends of a block's indices are where they belong. What is between is looked at when it is written.
template <class I>
bool ends_are_within(const I* indices, std::int64_t count, std::int64_t base, std::int64_t end) {
    return count == 0 || (indices[0] >= base && indices[0] <= indices[count - 1] && indices[count - 1] < end);
}

namespace detail {

template <class I>
SPARDL_INLINE std::int64_t pack_with(const I* indices, std::int64_t count, std::int64_t base, int bits,
                                     std::uint64_t* low, std::uint64_t* high, std::int64_t high_size) {
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    std::uint64_t low_word = 0, high_word = 0;  // of the streams, being filled
    int used = 0;
    std::uint64_t filling = 0;              // which word of the high stream
    std::uint64_t one = ~std::uint64_t{0};  // where the last unary part ended: before the first bit
    auto previous = static_cast<std::uint64_t>(base) - 1;
    std::uint64_t gaps = 0;  // all of them: the highest bit is set if one is negative
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint64_t index = static_cast<std::uint64_t>(static_cast<std::int64_t>(indices[i]));
        const std::uint64_t gap = index - previous - 1;
        previous = index;
        gaps |= gap;
        one += (gap >> bits) + 1;
        if (one >> 6 != filling) {
            if (one >> 6 >= static_cast<std::uint64_t>(high_size)) return -1;  // only if they do not increase
            high[filling] = high_word;
            high_word = 0;
            filling = one >> 6;
        }
        high_word |= std::uint64_t{1} << (one & 63);
        const std::uint64_t rest = gap & mask;
        low_word |= rest << used;
        used += bits;
        if (used >= 64) {
            *low++ = low_word;
            used -= 64;
            low_word = used == 0 ? 0 : rest >> (bits - used);
        }
    }
    if (gaps >> 63 != 0) return -1;
    if (count > 0) high[filling] = high_word;
    if (used > 0) *low = low_word;
    return words_for(static_cast<std::int64_t>(one + 1));
}

#if SPARDL_X86

// Of a low part, at most, if eight are written or read at once: wherever they begin, they are in eight bytes.
constexpr int bits_in_vectors = bits_in_any_load / 8;

SPARDL_AVX2 inline __m256i running_sums(__m256i eight) {
    eight = _mm256_add_epi32(eight, _mm256_slli_si256(eight, 4));
    eight = _mm256_add_epi32(eight, _mm256_slli_si256(eight, 8));
    const __m256i first_half = _mm256_permute2x128_si256(eight, eight, 0x08);  // as the second; zeros as the first
    return _mm256_add_epi32(eight, _mm256_shuffle_epi32(first_half, 0xff));
}

SPARDL_AVX2 inline __m256i any_of_four(__m256i lanes) {
    lanes = _mm256_or_si256(lanes, _mm256_shuffle_epi32(lanes, 0x4e));
    return _mm256_or_si256(lanes, _mm256_shuffle_epi32(lanes, 0xb1));
}

// Eight numbers of up to bits_in_vectors bits, one behind the other.
SPARDL_AVX2 inline std::uint64_t in_a_row(__m256i numbers, __m256i shifts, int bits) {
    const __m256i halves = any_of_four(_mm256_sllv_epi32(numbers, shifts));
    const auto second = static_cast<std::uint32_t>(_mm256_extract_epi32(halves, 4));
    return static_cast<std::uint32_t>(_mm256_cvtsi256_si32(halves)) | static_cast<std::uint64_t>(second) << (4 * bits);
}

// A word with ones at eight places, but for those that are not in it.
SPARDL_AVX2 inline std::uint64_t ones_at(__m256i places) {
    const __m256i one = _mm256_set1_epi64x(1);
    const __m256i first = _mm256_sllv_epi64(one, _mm256_cvtepu32_epi64(_mm256_castsi256_si128(places)));
    const __m256i second = _mm256_sllv_epi64(one, _mm256_cvtepu32_epi64(_mm256_extracti128_si256(places, 1)));
    const __m256i four = _mm256_or_si256(first, second);
    const __m128i two = _mm_or_si128(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return static_cast<std::uint64_t>(_mm_cvtsi128_si64(two) | _mm_extract_epi64(two, 1));
}

// A stream that is being written. Nothing is written behind its words, whatever is appended.
class BitWriter {
 public:
    BitWriter(std::uint64_t* words, std::int64_t size) : words_(words), size_(static_cast<std::uint64_t>(size)) {}
    // Up to 64 bits, all that are ones of `value`.
    void append(std::uint64_t value, int count) {
        word_ |= value << used_;
        used_ += count;
        if (used_ < 64) return;
        put_word();
        used_ -= 64;
        word_ = used_ == 0 ? 0 : value >> (count - used_);
    }
    // A one behind so many zeros. Words that are left out are zero already.
    void append_unary(std::uint64_t zeros) {
        const std::uint64_t place = static_cast<std::uint64_t>(used_) + zeros;
        if (place < 64) return append(std::uint64_t{1} << zeros, static_cast<int>(zeros) + 1);
        put_word();
        full_ += (place >> 6) - 1;
        used_ = static_cast<int>(place & 63);
        word_ = 0;
        append(1, 1);
    }
    // Returns how many words were written.
    std::int64_t finish() {
        if (used_ > 0) put_word();
        return static_cast<std::int64_t>(full_);
    }

 private:
    void put_word() {
        if (full_ < size_) words_[full_] = word_;
        ++full_;
    }

    std::uint64_t* words_;
    std::uint64_t size_, full_ = 0, word_ = 0;
    int used_ = 0;
};

// For up to bits_in_vectors bits. The same as pack_with, eight entries at once.
SPARDL_AVX2 inline std::int64_t pack_in_vectors(const std::int32_t* indices, std::int64_t count, std::int64_t base,
                                                int bits, std::uint64_t* low, std::uint64_t* high,
                                                std::int64_t high_size) {
    const __m256i shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(bits));
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1), numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i before = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6), all_ones = _mm256_set1_epi32(-1);
    BitWriter lows(low, words_for(count * bits)), highs(high, high_size);
    __m256i last = _mm256_set1_epi32(static_cast<std::int32_t>(base - 1));  // in its first lane: before the eight
    __m256i signs = _mm256_setzero_si256();                                 // of all gaps
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices + i));
        const __m256i turned = _mm256_permutevar8x32_epi32(eight, before);
        const __m256i previous = _mm256_blend_epi32(turned, last, 1);
        const __m256i gap = _mm256_add_epi32(_mm256_sub_epi32(eight, previous), all_ones);
        last = turned;
        signs = _mm256_or_si256(signs, gap);
        lows.append(in_a_row(_mm256_and_si256(gap, mask), shifts, bits), 8 * bits);
        const __m256i zeros = _mm256_srli_epi32(gap, bits), places = _mm256_add_epi32(running_sums(zeros), numbers);
        const auto length = static_cast<std::uint32_t>(_mm256_extract_epi32(places, 7)) + 1;
        if (length <= 64) {
            highs.append(ones_at(places), static_cast<int>(length));
        } else {
            alignas(32) std::uint32_t each[8];
            _mm256_store_si256(reinterpret_cast<__m256i*>(each), zeros);
            for (const std::uint32_t of_it : each) highs.append_unary(of_it);
        }
    }
    auto previous = i == 0 ? static_cast<std::uint64_t>(base) - 1 : static_cast<std::uint64_t>(indices[i - 1]);
    for (; i < count; ++i) {
        const std::uint64_t gap = static_cast<std::uint64_t>(indices[i]) - previous - 1;
        if (gap >> 63 != 0) return -1;
        previous = static_cast<std::uint64_t>(indices[i]);
        lows.append(gap & ((std::uint64_t{1} << bits) - 1), bits);
        highs.append_unary(gap >> bits);
    }
    if (_mm256_movemask_ps(_mm256_castsi256_ps(signs)) != 0) return -1;
    lows.finish();
    return highs.finish();
}

// Shifts by a variable are what it does all the time, and the newer instructions are better at it.
template <class I>
SPARDL_AVX2 std::int64_t pack_avx2(const I* indices, std::int64_t count, std::int64_t base, int bits,
                                   std::uint64_t* low, std::uint64_t* high, std::int64_t high_size) {
    if constexpr (sizeof(I) == 4) {
        if (bits <= bits_in_vectors) return pack_in_vectors(indices, count, base, bits, low, high, high_size);
    }
    return pack_with(indices, count, base, bits, low, high, high_size);
}
#endif

}  // namespace detail

// `high` must be zeroed; it has high_size = words_for(count + (span >> bits)) words, where span = last index - base
// + 1. Returns how many words of it are used. Throws where indices that do not increase would leave that room.
template <class I>
std::int64_t pack(const I* indices, std::int64_t count, std::int64_t base, int bits, std::uint64_t* low,
                  std::uint64_t* high, std::int64_t high_size) {
    std::int64_t used;
#if SPARDL_X86
    if (use_avx2()) {
        used = detail::pack_avx2(indices, count, base, bits, low, high, high_size);
    } else
#endif
    {
        used = detail::pack_with(indices, count, base, bits, low, high, high_size);
    }
    if (used < 0) throw std::invalid_argument("expected strictly increasing indices, got some out of order or twice");
    return used;
}

// The low stream, entry by entry.
class LowParts {
 public:
    LowParts(const std::uint64_t* words, std::int64_t count, int bits)
        : words_(words), bits_(bits), mask_((std::uint64_t{1} << bits) - 1) {
        if (bits <= bits_in_any_load) last_load_ = 8 * count - 8;
    }

    std::uint64_t operator[](std::int64_t i) const {
        if (has_eight_bytes(i)) return from(i) & mask_;
        if (bits_ == 0) return 0;
        const std::int64_t bit = i * bits_, word = bit >> 6;
        const int offset = static_cast<int>(bit & 63);
        std::uint64_t rest = words_[word] >> offset;
        if (offset + bits_ > 64) rest |= words_[word + 1] << (64 - offset);
        return rest & mask_;
    }

    // Whether eight bytes may be loaded from entry i's first on, and the stream from that entry on that is in them.
    bool has_eight_bytes(std::int64_t i) const { return (i * bits_) >> 3 <= last_load_; }
    std::uint64_t from(std::int64_t i) const {
        std::uint64_t bytes;
        std::memcpy(&bytes, reinterpret_cast<const char*>(words_) + ((i * bits_) >> 3), sizeof bytes);
        return bytes >> (i * bits_ & 7);
    }

 private:
    const std::uint64_t* words_;
    int bits_;
    std::uint64_t mask_;
    std::int64_t last_load_ = -1;  // the last byte from which eight may be loaded; near the end they may not be there
};

namespace detail {

// How many indices were read, and how far behind the base the last of them is; those before it are nearer.
struct Unpacked {
    std::int64_t count = 0;
    std::uint64_t last = 0;
};

template <class I>
SPARDL_INLINE Unpacked unpack_with(LowParts low, const std::uint64_t* high, std::int64_t high_words, std::int64_t count,
                                   std::int64_t base, int bits, I* indices) {
    // Unsigned, since sums that turn out to be too large may wrap.
    const std::uint64_t unit = std::uint64_t{1} << bits;  // what a zero of the high stream stands for
    const auto from = static_cast<std::uint64_t>(base);
    std::uint64_t lows = 0;  // sum of the low parts so far; the unary parts' sum is known from the bit's place
    std::uint64_t last = 0;
    std::int64_t i = 0;
    for (std::int64_t w = 0; w < high_words && i < count; ++w) {
        std::uint64_t ones = high[w];
        const std::int64_t end = std::min<std::int64_t>(count, i + __builtin_popcountll(ones));
        // What an index is but for the base and its low part, if its one were the word's first bit.
        std::uint64_t first = static_cast<std::uint64_t>(w * 64 - i) * unit + static_cast<std::uint64_t>(i);
        for (; i < end; ++i, ones &= ones - 1, first -= unit - 1) {
            lows += low[i];
            last = first + (static_cast<std::uint64_t>(__builtin_ctzll(ones)) << bits) + lows;
            indices[i] = static_cast<I>(from + last);
        }
    }
    return {i, last};
}

#if SPARDL_X86

// Where the ones of a word are, behind those of the words before; up to three places too many are written.
SPARDL_AVX2 inline std::int64_t list_ones(std::uint64_t ones, std::int32_t first, std::int32_t* places) {
    const std::int64_t count = __builtin_popcountll(ones);
    for (std::int64_t n = 0; n < count; n += 4) {
        for (int i = 0; i < 4; ++i, ones &= ones - 1) {
            places[n + i] = first + static_cast<std::int32_t>(_tzcnt_u64(ones));
        }
    }
    return count;
}

// Entry i's index is base + i + its low part and all before + unit * the zeros before its one.
//
// For up to bits_in_vectors bits, and sums that fit: fits_in_vectors. Sums are taken modulo 2^32, which is enough for
// what they come to; only the last index, which tells whether all are in range, may come to more.
SPARDL_AVX2 inline Unpacked unpack_in_vectors(LowParts low, const std::uint64_t* high, std::int64_t high_words,
                                              std::int64_t count, std::int64_t base, int bits, std::int32_t* indices) {
    constexpr std::int64_t at_once = 512;  // ones are listed
    std::int32_t places[at_once + 64];
    const __m256i shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(bits));
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1), numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i last = _mm256_set1_epi32(7);
    const auto base32 = static_cast<std::int32_t>(base);
    __m256i lows = _mm256_setzero_si256();  // the sum of the low parts so far, in every lane
    std::uint64_t last_index = 0;
    std::int64_t i = 0, w = 0;
    while (w < high_words && i < count) {
        std::int64_t listed = 0;
        for (; w < high_words && listed < at_once - 64; ++w) {
            listed += list_ones(high[w], static_cast<std::int32_t>(64 * w), places + listed);
        }
        listed = std::min(listed, count - i);
        std::int64_t n = 0;
        for (; n + 8 <= listed && low.has_eight_bytes(i + n); n += 8) {
            const std::uint64_t stream = low.from(i + n);
            const __m256i halves = _mm256_set_m128i(_mm_set1_epi32(static_cast<std::int32_t>(stream >> (4 * bits))),
                                                    _mm_set1_epi32(static_cast<std::int32_t>(stream)));
            const __m256i parts = _mm256_and_si256(_mm256_srlv_epi32(halves, shifts), mask);
            lows = _mm256_add_epi32(_mm256_permutevar8x32_epi32(lows, last), running_sums(parts));
            const __m256i number = _mm256_add_epi32(_mm256_set1_epi32(static_cast<std::int32_t>(i + n)), numbers);
            const __m256i one = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places + n));
            const __m256i zeros = _mm256_slli_epi32(_mm256_sub_epi32(one, number), bits);
            const __m256i index =
                _mm256_add_epi32(_mm256_add_epi32(number, zeros), _mm256_add_epi32(lows, _mm256_set1_epi32(base32)));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices + i + n), index);
        }
        auto sum = static_cast<std::uint32_t>(_mm256_extract_epi32(lows, 7));
        for (; n < listed; ++n) {
            const auto number = static_cast<std::uint32_t>(i + n);
            sum += static_cast<std::uint32_t>(low[i + n]);
            const std::uint32_t zeros = (static_cast<std::uint32_t>(places[n]) - number) << bits;
            indices[i + n] = static_cast<std::int32_t>(static_cast<std::uint32_t>(base32) + number + zeros + sum);
        }
        lows = _mm256_set1_epi32(static_cast<std::int32_t>(sum));
        i += listed;
        if (listed > 0) {
            last_index = (static_cast<std::uint64_t>(places[listed - 1] - (i - 1)) << bits) + sum +
                         static_cast<std::uint64_t>(i - 1);
        }
    }
    return {i, last_index};
}

// Places of ones and the sum of low parts stay below 2^31.
inline bool fits_in_vectors(std::int64_t high_words, std::int64_t count, int bits) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    return bits <= bits_in_vectors && high_words <= most / 64 - 1 && count <= most >> bits;
}

template <class I>
SPARDL_AVX2 Unpacked unpack_avx2(LowParts low, const std::uint64_t* high, std::int64_t high_words, std::int64_t count,
                                 std::int64_t base, int bits, I* indices) {
    if constexpr (sizeof(I) == 4) {
        if (fits_in_vectors(high_words, count, bits)) {
            return unpack_in_vectors(low, high, high_words, count, base, bits, indices);
        }
    }
    return unpack_with(low, high, high_words, count, base, bits, indices);
}
#endif

}  // namespace detail

// Writes indices from `base` on, and throws unless they all are below `end`. They increase by construction, as long as
// sums stay in 64 bits; FrameReader sees to that.
template <class I>
void unpack(const std::uint64_t* low, std::int64_t low_words, const std::uint64_t* high, std::int64_t high_words,
            std::int64_t count, std::int64_t base, std::int64_t end, int bits, I* indices) {
    if (base < 0 || end > index_limit || bits < 0 || bits > bits_in_any_load || count < 0) {
        throw std::invalid_argument("packed indices: no base, end, bits or count");
    }
    if (low_words < words_for(count * bits)) throw std::invalid_argument("packed indices: low bits are cut short");
    const LowParts low_parts(low, low_words, bits);
    detail::Unpacked read;
#if SPARDL_X86
    if (use_avx2()) {
        read = detail::unpack_avx2(low_parts, high, high_words, count, base, bits, indices);
    } else
#endif
    {
        read = detail::unpack_with(low_parts, high, high_words, count, base, bits, indices);
    }
    if (read.count < count) throw std::invalid_argument("packed indices end early");
    if (count > 0 && (base >= end || read.last >= static_cast<std::uint64_t>(end - base))) {
        throw std::invalid_argument("packed indices reach beyond their block");
    }
}

}  // namespace spardl
