#include <algorithm>

#include "arrays.hpp"
#include "frame.hpp"

namespace spardl {
namespace {

using Bytes = Array<std::uint8_t>;

// A frame of every block, each in memory of its own: entries of the elements base to base + length.
template <class I>
Bytes write_one(const Array<I>& indices, const py::array& values, std::int64_t base, std::int64_t length, Choice choice,
                int dtype, int value_coding) {
    const std::int64_t count = indices.size(), value_bytes = values.nbytes();
    if (values.size() != count || (values.flags() & py::array::c_style) == 0) {
        throw std::invalid_argument("indices and values differ in length, or values are not contiguous");
    }
    FrameHeader header{};
    std::copy_n(frame_magic, sizeof frame_magic, header.magic);
    header.dtype = static_cast<std::uint8_t>(dtype);
    header.value_coding = static_cast<std::uint8_t>(value_coding);
    header.count = count;
    header.base = base;
    header.length = length;
    const I* const index = indices.data();
    const void* const value = values.data();
    Block<std::uint8_t> frame;
    std::int64_t size;
    {
        const py::gil_scoped_release unlocked;
        const FramePlan plan(index, count, base, length, choice);
        frame = Block<std::uint8_t>(static_cast<std::int64_t>(sizeof header) + plan.index_bytes + padded(value_bytes));
        size = write_frame(header, plan, index, value, value_bytes, reinterpret_cast<char*>(frame.data()));
    }
    return frame.array(size);
}

py::list write_frames(const py::sequence& vectors, const py::sequence& blocks, const std::string& coding, int dtype,
                      int value_coding) {
    const Choice choice = coding == "raw" ? Choice::raw : coding == "packed" ? Choice::packed : Choice::shorter;
    py::list frames;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
        const py::tuple vector = vectors[i], block = blocks[i];
        const auto base = block[0].cast<std::int64_t>(), length = block[1].cast<std::int64_t>();
        const py::array values = vector[1];
        if (py::isinstance<Array<std::int32_t>>(vector[0])) {
            frames.append(write_one<std::int32_t>(vector[0].cast<Array<std::int32_t>>(), values, base, length, choice,
                                                  dtype, value_coding));
        } else {
            frames.append(write_one<std::int64_t>(vector[0].cast<Array<std::int64_t>>(), values, base, length, choice,
                                                  dtype, value_coding));
        }
    }
    return frames;
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

// Of each frame: base, length, codes of the dtype and of the values' coding, indices, values as a view of the frame.
py::list read_frames(const py::sequence& frames, bool wide) {
    py::list blocks;
    for (const py::handle item : frames) {
        const auto bytes = py::cast<Bytes>(item);
        const FrameReader frame(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        const FrameHeader& header = frame.header;
        const py::array indices = wide ? read_indices<std::int64_t>(frame) : read_indices<std::int32_t>(frame);
        const py::array values(stored_type(frame), {header.count}, {}, frame.values, bytes);
        blocks.append(py::make_tuple(header.base, header.length, header.dtype, header.value_coding, indices, values));
    }
    return blocks;
}

}  // namespace

void register_frame(py::module_& m) {
    m.def("write_frames", &write_frames, py::arg("vectors"), py::arg("blocks"), py::arg("coding"), py::arg("dtype"),
          py::arg("value_coding"));
    m.def("read_frames", &read_frames, py::arg("frames"), py::arg("wide"));
}

}  // namespace spardl
