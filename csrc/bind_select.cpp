#include "arrays.hpp"
#include "merge.hpp"
#include "select.hpp"

namespace spardl {
namespace {

template <class T, class I>
py::tuple topk_dense_in(const Array<T>& dense, std::int64_t k, std::int64_t base) {
    const std::int64_t room = std::min<std::int64_t>(k, dense.size()) + compact_slack;
    Block<I> indices(room);
    Block<T> values(room);
    std::int64_t kept = 0;
    {
        const T* data = dense.data();
        const std::int64_t size = dense.size();
        const py::gil_scoped_release unlocked;
        kept = topk_dense(data, size, k, base, indices.data(), values.data());
    }
    return py::make_tuple(indices.array(kept), values.array(kept));
}

template <class T>
py::tuple topk_dense_any(const Array<T>& dense, std::int64_t k, std::int64_t base, bool wide) {
    return wide ? topk_dense_in<T, std::int64_t>(dense, k, base) : topk_dense_in<T, std::int32_t>(dense, k, base);
}

template <class T, class I>
py::tuple select(const Array<I>& indices, const Array<T>& values, const Array<I>& over_indices,
                 const Array<T>& over_values, std::int64_t k, T floor) {
    const auto a = view(indices, values), over = view(over_indices, over_values);
    const std::int64_t room = std::min(k, a.size + over.size) + compact_slack;
    Block<I> out_indices(room);
    Block<T> out_values(room);
    Cut<T> cut;
    Key<T> largest = 0;
    std::int64_t found;
    {
        T* const value = out_values.data();
        const py::gil_scoped_release unlocked;
        const bool as_it_is = over.size == 0 && all_above(a, floor);
        const std::int64_t room_for_near = as_it_is ? 0 : a.size + over.size;
        const Scratch<I> near_indices(room_for_near);
        const Scratch<T> near_values(room_for_near);
        View<T, I> near = a;
        if (!as_it_is) {
            found = merge(Override<T, I>{a, over, floor}, near_indices.data(), near_values.data());
            near = {near_indices.data(), near_values.data(), found};
        }
        found = near.size;
        cut = find_cut_above(near.values, found, k, magnitude(floor));
        take_cut(near.indices, near.values, found, cut, out_indices.data(), value);
        for (std::int64_t i = 0; i < cut.kept; ++i) largest = std::max(largest, magnitude(value[i]));
        if (0 < k && k == found) {  // all are taken, and nobody has looked for the smallest yet
            cut.key = magnitude(near.values[0]);
            for (std::int64_t i = 1; i < found; ++i) cut.key = std::min(cut.key, magnitude(near.values[i]));
        }
    }
    const T threshold = 0 < k && k <= found ? from_key<T>(cut.key) : T{0};
    return py::make_tuple(out_indices.array(cut.kept), out_values.array(cut.kept), threshold, found,
                          from_key<T>(largest));
}

template <class T, class I>
py::tuple split(const Array<I>& indices, const Array<T>& values, std::int64_t k) {
    const auto a = view(indices, values);
    Block<I> kept_indices(a.size + 1), rest_indices(a.size + 1);
    Block<T> kept_values(a.size + 1), rest_values(a.size + 1);
    Cut<T> cut;
    {
        I *kept_index = kept_indices.data(), *rest_index = rest_indices.data();
        T *kept_value = kept_values.data(), *rest_value = rest_values.data();
        const py::gil_scoped_release unlocked;
        cut = find_cut(a.values, a.size, k);
        Cutter<T> cutter(cut);
        std::int64_t kept = 0;
        for (std::int64_t i = 0; i < a.size; ++i) {
            kept_index[kept] = rest_index[i - kept] = a.indices[i];
            kept_value[kept] = rest_value[i - kept] = a.values[i];
            kept += cutter.takes(a.values[i]);
        }
    }
    const std::int64_t left = a.size - cut.kept;
    return py::make_tuple(kept_indices.array(cut.kept), kept_values.array(cut.kept), rest_indices.array(left),
                          rest_values.array(left));
}

}  // namespace

void register_select(py::module_& m) {
    m.def("topk_dense", &topk_dense_any<float>, py::arg("dense").noconvert(), py::arg("k"), py::arg("base"),
          py::arg("wide"));
    m.def("topk_dense", &topk_dense_any<double>, py::arg("dense").noconvert(), py::arg("k"), py::arg("base"),
          py::arg("wide"));
#define SPARDL_DEFINE(T, I)                                                                                         \
    m.def("select", &select<T, I>, py::arg("indices").noconvert(), py::arg("values").noconvert(),                   \
          py::arg("over_indices").noconvert(), py::arg("over_values").noconvert(), py::arg("k"), py::arg("floor")); \
    m.def("split", &split<T, I>, py::arg("indices").noconvert(), py::arg("values").noconvert(), py::arg("k"));
    SPARDL_FOR_VALUE_AND_INDEX(SPARDL_DEFINE)
#undef SPARDL_DEFINE
}

}  // namespace spardl
