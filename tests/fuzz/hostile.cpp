// Damaged frames and wild indices through csrc/frame.hpp, built with ASAN and UBSAN (test_sanitized.py).
//
// Every array is exactly as long as it is said to be, so that an access beside it ends the process. What is accepted
// must be sound. Arguments: a seed, how many frames.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "frame.hpp"

using spardl::Choice;
using spardl::FrameHeader;
using spardl::FramePlan;
using spardl::FrameReader;

namespace {

std::mt19937_64 random_bits;

std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_bits() % static_cast<std::uint64_t>(n)); }

struct Counts {
    long refused = 0, sound = 0, not_written = 0;
};

// A frame of entries that increase, or now and then do not; empty if it was not written.
template <class I>
std::vector<char> draw_frame(Counts& counts) {
    const std::int64_t base = below(50), count = below(70), step = std::int64_t{1} << below(12);
    std::vector<I> indices;
    std::int64_t at = base - 1;
    for (std::int64_t i = 0; i < count; ++i) indices.push_back(static_cast<I>(at += 1 + below(step)));
    if (count > 0 && below(8) == 0) indices[static_cast<std::size_t>(below(count))] = static_cast<I>(random_bits());
    if (count > 1 && below(8) == 0) std::swap(indices[static_cast<std::size_t>(below(count))], indices.back());
    const std::int64_t length = below(8) == 0 ? below(100) : std::max(count, at - base + 1 + below(9));
    const std::vector<float> values(static_cast<std::size_t>(count), 1.5f);
    FrameHeader header{};
    std::copy_n(spardl::frame_magic, sizeof header.magic, header.magic);
    header.count = count;
    header.base = base;
    header.length = length;
    try {
        const FramePlan plan(indices.data(), count, base, length, static_cast<Choice>(below(3)));
        const auto value_bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
        const std::int64_t room =
            static_cast<std::int64_t>(sizeof header) + plan.index_bytes + spardl::padded(value_bytes);
        std::vector<char> frame(static_cast<std::size_t>(room));
        const std::int64_t size = write_frame(header, plan, indices.data(), values.data(), value_bytes, frame.data());
        frame.resize(static_cast<std::size_t>(size));
        return frame;
    } catch (const std::invalid_argument&) {
        ++counts.not_written;
        return {};
    }
}

void damage(std::vector<char>& frame) {
    const auto size = static_cast<std::int64_t>(frame.size());
    for (std::int64_t n = below(4); n > 0; --n) {
        const auto place =
            static_cast<std::size_t>(below(4) == 0 ? below(std::min<std::int64_t>(size, 48)) : below(size));
        frame[place] = static_cast<char>(random_bits());
    }
    if (below(4) == 0) {  // a number of the header
        const std::int64_t numbers[] = {
            -5000, -1, 0, 1, std::int64_t{1} << 31, std::int64_t{1} << 61, std::numeric_limits<std::int64_t>::max()};
        std::memcpy(frame.data() + 16 + 8 * below(4), numbers + below(7), 8);
    }
    if (below(8) == 0) frame.resize(static_cast<std::size_t>(below(size)));
}

template <class I>
void read(const std::vector<char>& bytes, Counts& counts) {
    const std::unique_ptr<char[]> frame(new char[bytes.size()]);  // exactly, and aligned
    std::copy(bytes.begin(), bytes.end(), frame.get());
    try {
        const FrameReader reader(frame.get(), static_cast<std::int64_t>(bytes.size()));
        const FrameHeader& header = reader.header;
        std::vector<I> indices(static_cast<std::size_t>(header.count));
        reader.read_indices(indices.data());
        std::int64_t previous = header.base - 1;
        for (const I index : indices) {
            if (index <= previous || index >= header.base + header.length) std::abort();
            previous = index;
        }
        volatile char last = 0;  // the values are all there
        for (std::int64_t i = 0; i < header.count * reader.value_width(); ++i) last = reader.values[i];
        static_cast<void>(last);
        ++counts.sound;
    } catch (const std::invalid_argument&) {
        ++counts.refused;
    }
}

}  // namespace

int main(int, char** arguments) {
    random_bits.seed(std::strtoull(arguments[1], nullptr, 10));
    Counts counts;
    for (long n = std::strtol(arguments[2], nullptr, 10); n > 0; --n) {
        std::vector<char> frame = below(2) == 0 ? draw_frame<std::int32_t>(counts) : draw_frame<std::int64_t>(counts);
        if (frame.empty()) continue;
        damage(frame);
        below(2) == 0 ? read<std::int32_t>(frame, counts) : read<std::int64_t>(frame, counts);
    }
    std::printf("%ld refused, %ld sound, %ld not written\n", counts.refused, counts.sound, counts.not_written);
}
