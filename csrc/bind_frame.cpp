#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "frame.hpp"

namespace spardl {
namespace {

using Bytes = Array<std::uint8_t>;

Choice choice_of(const std::string& coding) {
    return coding == "raw" ? Choice::raw : coding == "packed" ? Choice::packed : Choice::shorter;
}

// What is to become a frame: entries of the elements base to base + length.
template <class I>
class Entries {
 public:
    Entries(const py::handle& vector, const py::handle& block, Choice choice, int dtype, int value_coding)
        : indices_(py::cast<py::tuple>(vector)[0].cast<Array<I>>()), values_(py::cast<py::tuple>(vector)[1]) {
        const std::int64_t count = indices_.size();
        if (values_.size() != count || (values_.flags() & py::array::c_style) == 0) {
            throw std::invalid_argument("indices and values differ in length, or values are not contiguous");
        }
        const auto place = py::cast<py::tuple>(block);
        std::copy_n(frame_magic, sizeof frame_magic, header_.magic);
        header_.dtype = static_cast<std::uint8_t>(dtype);
        header_.value_coding = static_cast<std::uint8_t>(value_coding);
        header_.count = count;
        header_.base = place[0].cast<std::int64_t>();
        header_.length = place[1].cast<std::int64_t>();
        index_ = indices_.data();
        value_ = values_.data();
        value_bytes_ = values_.nbytes();
        plan_.emplace(index_, count, header_.base, header_.length, choice);
    }
    // How many bytes the frame may have, at most.
    std::int64_t room() const {
        return static_cast<std::int64_t>(sizeof header_) + plan_->index_bytes + padded(value_bytes_);
    }
    // Returns how many bytes it has. Needs no GIL.
    std::int64_t write(std::uint8_t* out) const {
        return write_frame(header_, *plan_, index_, value_, value_bytes_, reinterpret_cast<char*>(out));
    }

 private:
    Array<I> indices_;
    py::array values_;
    FrameHeader header_{};
    std::optional<FramePlan> plan_;
    const I* index_;
    const void* value_;
    std::int64_t value_bytes_;
};

constexpr std::int64_t table_bytes(std::int64_t frames) { return 8 * (2 + frames); }

std::uint8_t* put_number(std::uint8_t* at, std::int64_t number) {
    std::memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

template <class I>
Bytes write_alone(const py::tuple& vector, const py::tuple& block, Choice choice, int dtype, int value_coding) {
    const Entries<I> entries(vector, block, choice, dtype, value_coding);
    Block<std::uint8_t> frame(entries.room());
    std::int64_t size;
    {
        const py::gil_scoped_release unlocked;
        size = entries.write(frame.data());
    }
    return frame.array(size);
}

// A digest to be filled in, the number of frames, their lengths, the frames; and `front` bytes before.
template <class I>
Bytes write_together(const py::sequence& vectors, const py::sequence& blocks, Choice choice, int dtype,
                     int value_coding, std::int64_t front) {
    std::vector<Entries<I>> frames;
    const auto count = static_cast<std::int64_t>(vectors.size());
    std::int64_t at = front + table_bytes(count), room = at;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
        frames.emplace_back(vectors[i], blocks[i], choice, dtype, value_coding);
        room += frames.back().room();
    }
    Block<std::uint8_t> message(room);
    {
        const py::gil_scoped_release unlocked;
        std::uint8_t* table = put_number(message.data() + front, 0);
        table = put_number(table, count);
        for (const Entries<I>& frame : frames) {
            const std::int64_t size = frame.write(message.data() + at);
            table = put_number(table, size);
            at += size;
        }
    }
    return message.array(at);
}

bool is_narrow(const py::tuple& vector) { return py::isinstance<Array<std::int32_t>>(vector[0]); }

Bytes write_frame_of(const py::tuple& vector, const py::tuple& block, const std::string& coding, int dtype,
                     int value_coding) {
    const auto write = is_narrow(vector) ? &write_alone<std::int32_t> : &write_alone<std::int64_t>;
    return write(vector, block, choice_of(coding), dtype, value_coding);
}

Bytes write_message(const py::sequence& vectors, const py::sequence& blocks, const std::string& coding, int dtype,
                    int value_coding, std::int64_t front) {
    const auto write = is_narrow(vectors[0]) ? &write_together<std::int32_t> : &write_together<std::int64_t>;
    return write(vectors, blocks, choice_of(coding), dtype, value_coding, front);
}

py::dtype stored_type(const FrameReader& frame) {
    switch (frame.value_width()) {
        case 2:
            return py::dtype::of<std::uint16_t>();
        case 4:
            return py::dtype::of<float>();
        default:
            return py::dtype::of<double>();
    }
}

template <class I>
py::array read_indices(const FrameReader& frame) {
    Block<I> indices(frame.header.count);
    {
        const py::gil_scoped_release unlocked;
        frame.read_indices(indices.data());
    }
    return indices.array(frame.header.count);
}

bool is_aligned(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % alignof(std::uint64_t) == 0; }

// Base, length, codes of the dtype and of the values' coding, indices, values as a view of `owner`, which the frame is
// in.
py::tuple read_one(const std::uint8_t* data, std::int64_t size, const Bytes& owner, bool wide) {
    if (!is_aligned(data)) {
        const Bytes copy = fresh<std::uint8_t>(size);
        std::copy_n(data, size, const_cast<std::uint8_t*>(copy.data()));
        return read_one(copy.data(), size, copy, wide);
    }
    const FrameReader frame(reinterpret_cast<const char*>(data), size);
    const FrameHeader& header = frame.header;
    const py::array indices = wide ? read_indices<std::int64_t>(frame) : read_indices<std::int32_t>(frame);
    const py::array values(stored_type(frame), {header.count}, {}, frame.values, owner);
    return py::make_tuple(header.base, header.length, header.dtype, header.value_coding, indices, values);
}

py::list read_frames(const py::sequence& frames, bool wide) {
    py::list blocks;
    for (const py::handle item : frames) {
        const auto bytes = py::cast<Bytes>(item);
        blocks.append(read_one(bytes.data(), bytes.size(), bytes, wide));
    }
    return blocks;
}

// The lengths of the frames, or nothing if that is not a message of so many.
std::vector<std::int64_t> table_of(const Bytes& message, std::int64_t expected) {
    if (expected < 0 || expected > message.size() / 8 || message.size() < table_bytes(expected)) return {};
    std::int64_t end = table_bytes(expected);
    std::vector<std::int64_t> table(static_cast<std::size_t>(2 + expected));  // the digest, the number, the lengths
    std::memcpy(table.data(), message.data(), static_cast<std::size_t>(end));
    if (table[1] != expected) return {};
    table.erase(table.begin(), table.begin() + 2);
    for (const std::int64_t length : table) {
        if (length < 0 || length > message.size() - end) return {};
        end += length;
    }
    if (end != message.size()) return {};
    return table;
}

py::list read_message(const Bytes& message, std::int64_t expected, bool wide) {
    const std::vector<std::int64_t> lengths = table_of(message, expected);
    if (lengths.empty() && (expected != 0 || message.size() != table_bytes(0))) {
        throw std::invalid_argument("expected a message of " + std::to_string(expected) + " frames, got " +
                                    std::to_string(message.size()) + " bytes that are not");
    }
    py::list blocks;
    std::int64_t at = table_bytes(expected);
    for (const std::int64_t length : lengths) {
        blocks.append(read_one(message.data() + at, length, message, wide));
        at += length;
    }
    return blocks;
}

}  // namespace

void register_frame(py::module_& m) {
    m.def("write_frame", &write_frame_of, py::arg("vector"), py::arg("block"), py::arg("coding"), py::arg("dtype"),
          py::arg("value_coding"));
    m.def("write_message", &write_message, py::arg("vectors"), py::arg("blocks"), py::arg("coding"), py::arg("dtype"),
          py::arg("value_coding"), py::arg("front"));
    m.def("read_frames", &read_frames, py::arg("frames"), py::arg("wide"));
    m.def("read_message", &read_message, py::arg("message").noconvert(), py::arg("expected"), py::arg("wide"));
}

}  // namespace spardl
