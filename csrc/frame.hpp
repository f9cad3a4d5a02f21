// One block's entries as bytes, in the format of spardl/wire.py: a header, the indices, the values.
//
// Digests are made and compared there. Here a frame's structure is checked: wherever it comes from, the indices that
// are read increase strictly and lie in the block that the header tells of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "pack.hpp"

namespace spardl {

enum class IndexCoding : std::uint8_t { raw = 0, packed = 1, dense = 2 };
enum class Choice { shorter, raw, packed };  // of the two codings of sparse blocks

// In place of a digest: a frame's is filled in if it travels alone. "unsigned", in bytes.
constexpr std::uint64_t unsigned_frame = 0x64656e6769736e75;

struct FrameHeader {
    char magic[4];
    std::uint8_t dtype, value_coding;
    IndexCoding coding;
    std::uint8_t bits;
    std::uint64_t digest = unsigned_frame;
    std::int64_t count, base, length, high_words;
};
static_assert(sizeof(FrameHeader) == 48, "the header is laid out like its struct in spardl/wire.py");

constexpr char frame_magic[4] = {'S', 'P', 'v', '2'};
constexpr int most_bits = bits_in_any_load;

inline std::int64_t padded(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }
inline bool is_wide(std::int64_t length) { return length > std::int64_t{1} << 31; }

// How many low bits of a gap to store as they are: log2 of 0.69 x the mean gap, best for geometric gaps.
inline int rice_bits(std::int64_t span, std::int64_t count) {
    const std::int64_t mean = count == 0 ? 0 : span / count;
    // 89 / 128 of it, without leaving 64 bits; unsigned, since a negative number shifted to the right never ends.
    auto rest = static_cast<std::uint64_t>(mean / 128 * 89 + mean % 128 * 89 / 128);
    int bits = -1;
    for (; rest != 0; rest >>= 1) ++bits;
    return std::min(most_bits, std::max(0, bits));
}

template <class I>
std::string described(const I* indices, std::int64_t count) {
    if (count == 0) return "none";
    return std::to_string(count) + " from " + std::to_string(indices[0]) + " to " + std::to_string(indices[count - 1]);
}

// How a block of indices is going to be written, and how much room that takes at most.
struct FramePlan {
    IndexCoding coding;
    int bits;
    std::int64_t index_bytes;

    template <class I>
    FramePlan(const I* indices, std::int64_t count, std::int64_t base, std::int64_t length, Choice choice) {
        if (base < 0 || length < 0 || base > index_limit - length || count > length ||
            !ends_are_within(indices, count, base, base + length)) {
            throw std::invalid_argument("expected increasing indices from " + std::to_string(base) + " on, below " +
                                        std::to_string(base) + " + " + std::to_string(length) + ", got " +
                                        described(indices, count));
        }
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
        stored[i] = static_cast<Stored>(static_cast<std::uint64_t>(indices[i]) - static_cast<std::uint64_t>(base));
    }
}

// Whether what was read increases strictly, from 0 on and below `length`. `base + length` fits into I.
template <class Stored, class I>
bool read_relative(const char* in, std::int64_t count, std::int64_t base, std::int64_t length, I* indices) {
    const auto* const stored = reinterpret_cast<const Stored*>(in);
    if (count == 0) return true;
    using Unsigned = std::make_unsigned_t<I>;
    const auto shift = static_cast<Unsigned>(base);  // sums of what is out of range may wrap
    indices[0] = static_cast<I>(static_cast<Unsigned>(stored[0]) + shift);
    Stored falls = 0;
    for (std::int64_t i = 1; i < count; ++i) {
        falls |= static_cast<Stored>(stored[i] <= stored[i - 1]);  // no branch, for the loop to become vectors
        indices[i] = static_cast<I>(static_cast<Unsigned>(stored[i]) + shift);
    }
    return falls == 0 && stored[0] >= 0 && stored[count - 1] < length;
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
        header.high_words =
            pack(indices, count, header.base, plan.bits, low, low + low_words, plan.index_bytes / 8 - low_words);
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

// A frame that somebody else has written: nothing in it is trusted, everything stays within its size. It begins where
// an integer may.
class FrameReader {
 public:
    FrameReader(const char* frame, std::int64_t size) : frame_(frame), size_(size) {
        if (size < static_cast<std::int64_t>(sizeof header)) {
            throw std::invalid_argument("frame of " + std::to_string(size) + " bytes is shorter than its header");
        }
        if (size % 8 != 0) {
            throw std::invalid_argument("frame of " + std::to_string(size) + " bytes: expected a multiple of 8");
        }
        std::memcpy(&header, frame, sizeof header);
        if (std::memcmp(header.magic, frame_magic, sizeof frame_magic) != 0) {
            throw std::invalid_argument("frame does not start with SPv2: do all ranks run the same spardl?");
        }
        if (!is_sound()) throw std::invalid_argument("frame has a header that spardl does not write");
        at_ = sizeof header;
        switch (header.coding) {
            case IndexCoding::packed:
                low_ = take(words_for(header.count * header.bits), 8);
                high_ = take(header.high_words, 8);
                break;
            case IndexCoding::raw:
                low_ = take(header.count, is_wide(header.length) ? 8 : 4);
                break;
            case IndexCoding::dense:
                break;
        }
        values = take(header.count, value_width());
        if (at_ != size) {
            throw std::invalid_argument("frame of " + std::to_string(size) + " bytes should end after " +
                                        std::to_string(at_));
        }
    }

    FrameHeader header;
    const char* values;

    // Of a value as it is stored.
    int value_width() const { return header.value_coding != 0 ? 2 : header.dtype == 0 ? 4 : 8; }

    template <class I>
    void read_indices(I* indices) const {
        const std::int64_t count = header.count, base = header.base, end = base + header.length;
        if (end - 1 > static_cast<std::int64_t>(std::numeric_limits<I>::max())) {
            throw std::invalid_argument("frame of a block up to " + std::to_string(end) + ": expected 32-bit indices");
        }
        bool in_order = true;
        switch (header.coding) {
            case IndexCoding::packed:
                unpack(reinterpret_cast<const std::uint64_t*>(low_), words_for(count * header.bits),
                       reinterpret_cast<const std::uint64_t*>(high_), header.high_words, count, base, end, header.bits,
                       indices);
                break;
            case IndexCoding::raw:
                in_order = is_wide(header.length)
                               ? detail::read_relative<std::int64_t>(low_, count, base, header.length, indices)
                               : detail::read_relative<std::int32_t>(low_, count, base, header.length, indices);
                break;
            case IndexCoding::dense:
                for (std::int64_t i = 0; i < count; ++i) indices[i] = static_cast<I>(base + i);
                break;
        }
        if (!in_order) throw std::invalid_argument("frame has indices out of order, or beyond its block");
    }

 private:
    // Whether spardl writes such headers. Then no sum leaves 64 bits, whatever the streams of indices hold: high parts
    // come to length + 63 * 2^57 at most, low ones to length, and that is less than 2^64.
    bool is_sound() const {
        const FrameHeader& h = header;
        if (h.dtype > 1 || h.value_coding > 2 || h.coding > IndexCoding::dense || h.bits > most_bits) return false;
        if (h.base < 0 || h.length < 0 || h.base > index_limit - h.length) return false;
        if (h.count < 0 || h.high_words < 0) return false;
        switch (h.coding) {
            case IndexCoding::packed:
                return h.count <= h.length >> h.bits && h.high_words <= words_for(h.count + (h.length >> h.bits));
            case IndexCoding::raw:
                return h.count <= h.length && h.bits == 0 && h.high_words == 0;
            default:
                return h.count == h.length && h.bits == 0 && h.high_words == 0;
        }
    }

    const char* take(std::int64_t count, int width) {
        if (count > (size_ - at_) / width) {
            throw std::invalid_argument("frame of " + std::to_string(size_) + " bytes ends inside a part of " +
                                        std::to_string(count) + " elements");
        }
        const char* const part = frame_ + at_;
        at_ = padded(at_ + count * width);
        return part;
    }

    const char* frame_;
    std::int64_t size_, at_;
    const char* low_ = nullptr;
    const char* high_ = nullptr;
};

}  // namespace spardl
