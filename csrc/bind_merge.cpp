#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "arrays.hpp"
#include "intersect.hpp"
#include "merge.hpp"

namespace spardl {
namespace {

template <class T, class I>
py::tuple add_two(const Array<I>& indices_a, const Array<T>& values_a, const Array<I>& indices_b,
                  const Array<T>& values_b) {
    const auto a = view(indices_a, values_a), b = view(indices_b, values_b);
    Block<I> indices(a.size + b.size);
    Block<T> values(a.size + b.size);
    std::int64_t n;
    {
        const py::gil_scoped_release unlocked;
        n = merge(Sum<T, I>{a, b}, indices.data(), values.data());
    }
    return py::make_tuple(indices.array(n), values.array(n));
}

template <class T, class I>
py::tuple overlay_add(const Array<I>& over_indices, const Array<T>& over_values, const Array<T>& dense,
                      const Array<I>& indices, const Array<T>& values) {
    const auto over = view(over_indices, over_values), b = view(indices, values);
    Block<I> out_indices(over.size + b.size);
    Block<T> out_values(over.size + b.size);
    const T* data = dense.data();
    std::int64_t n;
    {
        const py::gil_scoped_release unlocked;
        n = merge(Overlay<T, I>{over, b, data}, out_indices.data(), out_values.data());
    }
    return py::make_tuple(out_indices.array(n), out_values.array(n));
}

template <class T, class I>
void scatter_add(Array<T>& dense, const Array<I>& indices, const Array<T>& values) {
    const auto b = view(indices, values);
    T* data = dense.mutable_data();
    const py::gil_scoped_release unlocked;
    for (std::int64_t j = 0; j < b.size; ++j) {
        prefetch_ahead(data, b.indices, j, b.size);
        data[b.indices[j]] += b.values[j];
    }
}

template <class T, class I, class Update>
void update_in(Array<T>& dense, const Array<I>& wanted, const Array<I>& indices, const Array<T>& values,
               Update update) {
    const auto b = view(indices, values);
    T* data = dense.mutable_data();
    const I* want = wanted.data();
    const std::int64_t size = wanted.size();
    const py::gil_scoped_release unlocked;
    update_where(data, want, size, b, update);
}

template <class T, class I>
void overwrite_where(Array<T>& dense, const Array<I>& wanted, const Array<I>& indices, const Array<T>& values) {
    update_in(dense, wanted, indices, values, [](T& target, T value) { target = value; });
}

template <class T, class I>
void add_where(Array<T>& dense, const Array<I>& wanted, const Array<I>& indices, const Array<T>& values) {
    update_in(dense, wanted, indices, values, [](T& target, T value) { target += value; });
}

template <class T, class I>
using Vectors = std::vector<std::pair<Array<I>, Array<T>>>;

// Of every block, one behind the other: at the wanted indices what was sent, else what was received.
template <class T, class I>
py::tuple corrections(const std::vector<Array<I>>& wanted, const Vectors<T, I>& received, const Vectors<T, I>& sent) {
    if (received.size() != wanted.size() || sent.size() != wanted.size()) {
        throw std::invalid_argument("corrections: expected something wanted, received and sent of every block");
    }
    std::int64_t room = intersect_slack;
    for (const auto& block : wanted) room += block.size();
    Block<I> indices(room);
    Block<T> values(room);
    std::vector<View<T, I>> first, second;
    std::vector<std::pair<const I*, std::int64_t>> want;
    for (std::size_t j = 0; j < wanted.size(); ++j) {
        want.emplace_back(wanted[j].data(), wanted[j].size());
        first.push_back(view(sent[j].first, sent[j].second));
        second.push_back(view(received[j].first, received[j].second));
    }
    std::int64_t n = 0;
    {
        const py::gil_scoped_release unlocked;
        for (std::size_t j = 0; j < want.size(); ++j) {
            n += corrections_of(want[j].first, want[j].second, first[j], second[j], indices.data() + n,
                                values.data() + n);
        }
    }
    return py::make_tuple(indices.array(n), values.array(n));
}

}  // namespace

void register_merge(py::module_& m) {
#define SPARDL_DEFINE(T, I)                                                                                       \
    m.def("add", &add_two<T, I>, py::arg("indices_a").noconvert(), py::arg("values_a").noconvert(),               \
          py::arg("indices_b").noconvert(), py::arg("values_b").noconvert());                                     \
    m.def("overlay", &overlay_add<T, I>, py::arg("over_indices").noconvert(), py::arg("over_values").noconvert(), \
          py::arg("dense").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert());           \
    m.def("scatter_add", &scatter_add<T, I>, py::arg("dense").noconvert(), py::arg("indices").noconvert(),        \
          py::arg("values").noconvert());                                                                         \
    m.def("overwrite_where", &overwrite_where<T, I>, py::arg("dense").noconvert(), py::arg("wanted").noconvert(), \
          py::arg("indices").noconvert(), py::arg("values").noconvert());                                         \
    m.def("corrections", &corrections<T, I>, py::arg("wanted").noconvert(), py::arg("received").noconvert(),      \
          py::arg("sent").noconvert());                                                                           \
    m.def("add_where", &add_where<T, I>, py::arg("dense").noconvert(), py::arg("wanted").noconvert(),             \
          py::arg("indices").noconvert(), py::arg("values").noconvert());
    SPARDL_FOR_VALUE_AND_INDEX(SPARDL_DEFINE)
#undef SPARDL_DEFINE
}

}  // namespace spardl
