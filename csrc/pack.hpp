// Gaps between sorted indices as Rice codes in two streams of 64-bit words: low bits packed, the rest in unary.
//
// At density x the gaps are close to geometric, for which Rice codes are within a few hundredths of a bit of the
// entropy. Two streams decode without a serial chain of bit positions: entry i's low bits stand at i * bits, and its
// unary part ends at the i-th one.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace spardl {

inline std::int64_t words_for(std::int64_t bits) { return (bits + 63) / 64; }

// Both streams must be zeroed; `high` needs words_for(count + (span >> bits)), where span = last index - base + 1.
// Returns how many words of `high` are used.
template <class I>
std::int64_t pack(const I* indices, std::int64_t count, std::int64_t base, int bits, std::uint64_t* low,
                  std::uint64_t* high) {
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    std::uint64_t word = 0;  // of the low stream, being filled
    int used = 0;
    std::int64_t one = -1;  // where the last unary part ended
    std::int64_t previous = base - 1;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto gap = static_cast<std::uint64_t>(static_cast<std::int64_t>(indices[i]) - previous - 1);
        previous = indices[i];
        one += static_cast<std::int64_t>(gap >> bits) + 1;
        high[one >> 6] |= std::uint64_t{1} << (one & 63);
        const std::uint64_t rest = gap & mask;
        word |= rest << used;
        used += bits;
        if (used >= 64) {
            *low++ = word;
            used -= 64;
            word = used == 0 ? 0 : rest >> (bits - used);
        }
    }
    if (used > 0) *low = word;
    return words_for(one + 1);
}

template <class I>
void unpack(const std::uint64_t* low, std::int64_t low_words, const std::uint64_t* high, std::int64_t high_words,
            std::int64_t count, std::int64_t base, int bits, I* indices) {
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    if (low_words < words_for(count * bits)) throw std::invalid_argument("packed indices: low bits are cut short");
    std::int64_t lows = 0;  // sum of the low parts so far; the unary parts' sum is known from the bit's place
    std::int64_t i = 0;
    for (std::int64_t w = 0; w < high_words && i < count; ++w) {
        for (std::uint64_t ones = high[w]; ones != 0 && i < count; ones &= ones - 1) {
            const std::int64_t one = w * 64 + __builtin_ctzll(ones);
            if (bits > 0) {
                const std::int64_t bit = i * bits;
                const std::int64_t word = bit >> 6;
                const int offset = static_cast<int>(bit & 63);
                std::uint64_t rest = low[word] >> offset;
                if (offset + bits > 64) rest |= low[word + 1] << (64 - offset);
                lows += static_cast<std::int64_t>(rest & mask);
            }
            indices[i] = static_cast<I>(base + ((one - i) << bits) + lows + i);
            ++i;
        }
    }
    if (i < count) throw std::invalid_argument("packed indices end early");
}

}  // namespace spardl
