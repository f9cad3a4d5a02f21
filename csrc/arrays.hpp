// NumPy arrays at the border between Python and the kernels.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "merge.hpp"
#include "pool.hpp"

namespace spardl {

namespace py = pybind11;

// Exactly this dtype and contiguous: a silent conversion would cost a copy, or write into one.
template <class T>
using Array = py::array_t<T, py::array::c_style>;

// Memory that a kernel writes before it is known how long its result is; then an array of the first elements of it.
// That needs the GIL, everything before does not.
template <class T>
class Block {
 public:
    Block() = default;
    explicit Block(std::int64_t size)
        : data_(static_cast<T*>(take_block(static_cast<std::size_t>(size) * sizeof(T))), &give_block) {}
    T* data() const { return data_.get(); }
    Array<T> array(std::int64_t size) {
        const py::capsule owner(data_.get(), give_block);
        return Array<T>(size, data_.release(), owner);
    }
    py::array array(std::int64_t size, const py::dtype& as) {
        const py::capsule owner(data_.get(), give_block);
        return py::array(as, {size}, {}, data_.release(), owner);
    }

 private:
    std::unique_ptr<T, void (*)(void*)> data_{nullptr, &give_block};
};

// An array of undefined contents, whose memory returns to the pool with its last reference.
template <class T>
Array<T> fresh(std::int64_t size) {
    return Block<T>(size).array(size);
}

template <class T, class I>
View<T, I> view(const Array<I>& indices, const Array<T>& values) {
    if (indices.size() != values.size()) throw std::invalid_argument("indices and values differ in length");
    return {indices.data(), values.data(), values.size()};
}

// Registers f<T, I> for every pair of value and index types; pybind11 picks by the arguments' dtypes.
#define SPARDL_FOR_VALUE_AND_INDEX(F) \
    F(float, std::int32_t)            \
    F(float, std::int64_t)            \
    F(double, std::int32_t)           \
    F(double, std::int64_t)

void register_memory(py::module_& m);
void register_accumulate(py::module_& m);
void register_select(py::module_& m);
void register_merge(py::module_& m);
void register_pack(py::module_& m);
void register_frame(py::module_& m);

}  // namespace spardl
