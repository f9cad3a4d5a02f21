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

constexpr int bits_in_any_load = 57;  // of eight bytes, from whatever bit of the first on

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

// The low stream, entry by entry.
class LowParts {
 public:
    LowParts(const std::uint64_t* words, std::int64_t count, int bits)
        : words_(words), bits_(bits), mask_((std::uint64_t{1} << bits) - 1) {
        if (bits <= bits_in_any_load) last_load_ = 8 * count - 8;
    }

    std::int64_t operator[](std::int64_t i) const {
        const std::int64_t bit = i * bits_, byte = bit >> 3;
        std::uint64_t rest;
        if (byte <= last_load_) {
            std::memcpy(&rest, reinterpret_cast<const char*>(words_) + byte, sizeof rest);
            return static_cast<std::int64_t>(rest >> (bit & 7) & mask_);
        }
        if (bits_ == 0) return 0;
        const std::int64_t word = bit >> 6;
        const int offset = static_cast<int>(bit & 63);
        rest = words_[word] >> offset;
        if (offset + bits_ > 64) rest |= words_[word + 1] << (64 - offset);
        return static_cast<std::int64_t>(rest & mask_);
    }

 private:
    const std::uint64_t* words_;
    int bits_;
    std::uint64_t mask_;
    std::int64_t last_load_ = -1;  // the last byte from which eight may be loaded; near the end they may not be there
};

template <class I>
void unpack(const std::uint64_t* low, std::int64_t low_words, const std::uint64_t* high, std::int64_t high_words,
            std::int64_t count, std::int64_t base, int bits, I* indices) {
    if (low_words < words_for(count * bits)) throw std::invalid_argument("packed indices: low bits are cut short");
    const LowParts low_parts(low, low_words, bits);
    std::int64_t lows = 0;  // sum of the low parts so far; the unary parts' sum is known from the bit's place
    std::int64_t i = 0;
    for (std::int64_t w = 0; w < high_words && i < count; ++w) {
        for (std::uint64_t ones = high[w]; ones != 0 && i < count; ones &= ones - 1, ++i) {
            const std::int64_t one = w * 64 + __builtin_ctzll(ones);
            lows += low_parts[i];
            indices[i] = static_cast<I>(base + ((one - i) << bits) + lows + i);
        }
    }
    if (i < count) throw std::invalid_argument("packed indices end early");
}

}  // namespace spardl
