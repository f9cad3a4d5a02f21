// spardl.kernels._native: the compiled kernels. One register function per topic, each in its own file.
#include <pybind11/stl.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "simd.hpp"

namespace {

namespace py = pybind11;

// One-dimensional, contiguous arrays of one dtype, one after the other.
py::array concatenate(const std::vector<py::array>& parts) {
    py::ssize_t bytes = 0, count = 0;
    for (const auto& part : parts) {
        if (part.ndim() != 1 || !(part.flags() & py::array::c_style) || part.itemsize() != parts[0].itemsize()) {
            throw std::invalid_argument("concatenate: expected contiguous vectors of one dtype");
        }
        bytes += part.nbytes();
        count += part.size();
    }
    spardl::Block<char> joined(bytes);
    char* at = joined.data();
    for (const auto& part : parts) {
        if (part.nbytes() > 0) std::memcpy(at, part.data(), static_cast<std::size_t>(part.nbytes()));
        at += part.nbytes();
    }
    return joined.array(count, parts[0].dtype());
}

}  // namespace

PYBIND11_MODULE(_native, m) {
    m.doc() = "Compiled kernels of spardl; use them through spardl.kernels.";
    m.def("simd", [] { return spardl::use_avx2() ? "avx2" : "portable"; }, "Vector instructions in use.");
    m.def("empty", &spardl::fresh<std::uint8_t>, "A uint8 array of undefined contents from the pool.");
    m.def("concatenate", &concatenate, py::arg("parts"));
    spardl::register_accumulate(m);
    spardl::register_select(m);
    spardl::register_merge(m);
    spardl::register_pack(m);
    spardl::register_frame(m);
}
