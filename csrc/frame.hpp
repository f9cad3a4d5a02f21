// One block's entries as bytes, in the format of spardl/wire.py: a header, the indices, the values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "pack.hpp"

namespace spardl {

enum class IndexCoding : std::uint8_t { raw = 0, packed = 1, dense = 2 };
enum class Choice { shorter, raw, packed };  // of the two codings of sparse blocks

struct FrameHeader {
    char magic[4];
    std::uint8_t dtype, value_coding;
    IndexCoding coding;
    std::uint8_t bits;
    std::int64_t count, base, length, high_words;
};
static_assert(sizeof(FrameHeader) == 40, "the header is laid out like its struct in spardl/wire.py");

constexpr char frame_magic[4] = {'S', 'P', 'v', '1'};
constexpr int most_bits = bits_in_any_load;

inline std::int64_t padded(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }
inline bool is_wide(std::int64_t length) { return length > std::int64_t{1} << 31; }

// How many low bits of a gap to store as they are: log2 of 0.69 x the mean gap, best for geometric gaps.
inline int rice_bits(std::int64_t span, std::int64_t count) {
    const std::int64_t mean = count == 0 ? 0 : span / count;
    int bits = -1;
    for (std::int64_t rest = mean * 89 / 128; rest != 0; rest >>= 1) ++bits;
    return std::min(most_bits, std::max(0, bits));
}

// How a block of indices is going to be written, and how much room that takes at most.
struct FramePlan {
    IndexCoding coding;
    int bits;
    std::int64_t index_bytes;

    template <class I>
    FramePlan(const I* indices, std::int64_t count, std::int64_t base, std::int64_t length, Choice choice) {
        const std::int64_t span = count == 0 ? 0 : static_cast<std::int64_t>(indices[count - 1]) - base + 1;
        bits = rice_bits(span, count);
        const std::int64_t packed = 8 * (words_for(count * bits) + words_for(count + (span >> bits)));
        coding = choice == Choice::packed || (choice == Choice::shorter && packed < count * 4) ? IndexCoding::packed
                                                                                               : IndexCoding::raw;
        if (coding == IndexCoding::raw) bits = 0;
        index_bytes = coding == IndexCoding::packed ? packed : padded(count * (is_wide(length) ? 8 : 4));
    }
};

namespace detail {

template <class Stored, class I>
void write_relative(const I* indices, std::int64_t count, std::int64_t base, char* out) {
    auto* const stored = reinterpret_cast<Stored*>(out);
    for (std::int64_t i = 0; i < count; ++i) {
        stored[i] = static_cast<Stored>(static_cast<std::int64_t>(indices[i]) - base);
    }
}

template <class Stored, class I>
void read_relative(const char* in, std::int64_t count, std::int64_t base, I* indices) {
    const auto* const stored = reinterpret_cast<const Stored*>(in);
    for (std::int64_t i = 0; i < count; ++i) indices[i] = static_cast<I>(stored[i] + base);
}

// Copies `bytes` and returns where the next part begins; what lies between is zero.
inline char* put_padded(char* out, const void* bytes, std::int64_t size) {
    if (size > 0) std::memcpy(out, bytes, static_cast<std::size_t>(size));
    std::memset(out + size, 0, static_cast<std::size_t>(padded(size) - size));
    return out + padded(size);
}

}  // namespace detail

// Writes a frame to `out`, which has room for header, plan.index_bytes and the padded values. Returns its size.
template <class I>
std::int64_t write_frame(FrameHeader header, const FramePlan& plan, const I* indices, const void* values,
                         std::int64_t value_bytes, char* out) {
    char* at = out + sizeof header;
    const std::int64_t count = header.count;
    if (plan.coding == IndexCoding::packed) {
        auto* const low = reinterpret_cast<std::uint64_t*>(at);
        const std::int64_t low_words = words_for(count * plan.bits);
        std::memset(at + 8 * low_words, 0, static_cast<std::size_t>(plan.index_bytes - 8 * low_words));
        header.high_words = pack(indices, count, header.base, plan.bits, low, low + low_words);
        at += 8 * (low_words + header.high_words);
    } else {
        const std::int64_t bytes = count * (is_wide(header.length) ? 8 : 4);
        if (is_wide(header.length)) {
            detail::write_relative<std::int64_t>(indices, count, header.base, at);
        } else {
            detail::write_relative<std::int32_t>(indices, count, header.base, at);
        }
        std::memset(at + bytes, 0, static_cast<std::size_t>(plan.index_bytes - bytes));
        at += plan.index_bytes;
    }
    header.coding = plan.coding;
    header.bits = static_cast<std::uint8_t>(plan.bits);
    std::memcpy(out, &header, sizeof header);
    return detail::put_padded(at, values, value_bytes) - out;
}

// A frame that somebody else has written: nothing in it is trusted, everything stays within its size.
class FrameReader {
 public:
    FrameReader(const char* frame, std::int64_t size) : frame_(frame), size_(size) {
        if (size < static_cast<std::int64_t>(sizeof header)) {
            throw std::invalid_argument("frame of " + std::to_string(size) + " bytes is shorter than its header");
        }
        std::memcpy(&header, frame, sizeof header);
        if (std::memcmp(header.magic, frame_magic, sizeof frame_magic) != 0) {
            throw std::invalid_argument("frame does not start with SPv1: do all ranks run the same spardl?");
        }
        if (header.count < 0 || header.high_words < 0 || header.bits > most_bits || header.dtype > 1 ||
            header.value_coding > 2 || header.coding > IndexCoding::dense) {
            throw std::invalid_argument("frame has a header that spardl does not write");
        }
        at_ = sizeof header;
        switch (header.coding) {
            case IndexCoding::packed:
                low_ = take(words_of(header.count, header.bits), 8);
                high_ = take(header.high_words, 8);
                break;
            case IndexCoding::raw:
                low_ = take(header.count, is_wide(header.length) ? 8 : 4);
                break;
            case IndexCoding::dense:
                break;
        }
        values = take(header.count, value_width());
    }

    FrameHeader header;
    const char* values;

    // Of a value as it is stored.
    int value_width() const { return header.value_coding != 0 ? 2 : header.dtype == 0 ? 4 : 8; }

    template <class I>
    void read_indices(I* indices) const {
        const std::int64_t count = header.count, base = header.base;
        switch (header.coding) {
            case IndexCoding::packed:
                unpack(reinterpret_cast<const std::uint64_t*>(low_), words_for(count * header.bits),
                       reinterpret_cast<const std::uint64_t*>(high_), header.high_words, count, base, header.bits,
                       indices);
                break;
            case IndexCoding::raw:
                if (is_wide(header.length)) {
                    detail::read_relative<std::int64_t>(low_, count, base, indices);
                } else {
                    detail::read_relative<std::int32_t>(low_, count, base, indices);
                }
                break;
            case IndexCoding::dense:
                for (std::int64_t i = 0; i < count; ++i) indices[i] = static_cast<I>(base + i);
                break;
        }
    }

 private:
    static std::int64_t words_of(std::int64_t count, int bits) {
        const bool fits = bits == 0 || count <= (std::numeric_limits<std::int64_t>::max() - 63) / bits;
        return fits ? words_for(count * bits) : std::numeric_limits<std::int64_t>::max();
    }

    const char* take(std::int64_t count, int width) {
        if (count > (size_ - at_) / width) {
            throw std::invalid_argument("frame of " + std::to_string(size_) + " bytes ends inside a part of " +
                                        std::to_string(count) + " elements");
        }
        const char* const part = frame_ + at_;
        at_ = std::min(size_, padded(at_ + count * width));
        return part;
    }

    const char* frame_;
    std::int64_t size_, at_;
    const char* low_ = nullptr;
    const char* high_ = nullptr;
};

}  // namespace spardl
