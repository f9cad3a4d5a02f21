#include <pybind11/stl.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"

namespace spardl {
namespace {

// One-dimensional, contiguous arrays of one dtype, one after the other.
py::array concatenate(const std::vector<py::array>& parts) {
    if (parts.empty()) throw std::invalid_argument("concatenate: expected at least one array");
    const py::dtype type = parts[0].dtype();
    py::ssize_t bytes = 0, count = 0;
    for (const auto& part : parts) {
        const bool alike = part.dtype().kind() == type.kind() && part.itemsize() == type.itemsize();
        if (!alike || part.ndim() != 1 || (part.flags() & py::array::c_style) == 0) {
            throw std::invalid_argument("concatenate: expected contiguous vectors of one dtype");
        }
        bytes += part.nbytes();
        count += part.size();
    }
    Block<char> joined(bytes);
    char* at = joined.data();
    for (const auto& part : parts) {
        if (part.nbytes() > 0) std::memcpy(at, part.data(), static_cast<std::size_t>(part.nbytes()));
        at += part.nbytes();
    }
    return joined.array(count, type);
}

}  // namespace

void register_memory(py::module_& m) {
    m.def("empty", &fresh<std::uint8_t>, "A uint8 array of undefined contents from the pool.");
    m.def("concatenate", &concatenate, py::arg("parts"), "Like NumPy's, for vectors of one dtype; from the pool.");
}

}  // namespace spardl
