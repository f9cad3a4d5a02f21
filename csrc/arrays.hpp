// NumPy arrays at the border between Python and the kernels.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>

#include "merge.hpp"
#include "pool.hpp"

namespace spardl {

namespace py = pybind11;

// Exactly this dtype and contiguous: a silent conversion would cost a copy, or write into one.
template <class T>
using Array = py::array_t<T, py::array::c_style>;

// An array of undefined contents, whose memory returns to the pool with its last reference.
template <class T>
Array<T> fresh(std::int64_t size) {
    T* const data = static_cast<T*>(take_block(static_cast<std::size_t>(size) * sizeof(T)));
    return Array<T>(size, data, py::capsule(data, give_block));
}

template <class T, class I>
View<T, I> view(const Array<I>& indices, const Array<T>& values) {
    if (indices.size() != values.size()) throw std::invalid_argument("indices and values differ in length");
    return {indices.data(), values.data(), values.size()};
}

// The first `size` elements of an array that was allocated for the worst case, without a copy.
template <class T>
py::array first(const Array<T>& array, std::int64_t size) {
    if (array.size() == size) return array;
    return py::array(array[py::slice(0, size, 1)]);
}

// Registers f<T, I> for every pair of value and index types; pybind11 picks by the arguments' dtypes.
#define SPARDL_FOR_VALUE_AND_INDEX(F) \
    F(float, std::int32_t)            \
    F(float, std::int64_t)            \
    F(double, std::int32_t)           \
    F(double, std::int64_t)

void register_accumulate(py::module_& m);
void register_select(py::module_& m);
void register_merge(py::module_& m);
void register_pack(py::module_& m);

}  // namespace spardl
