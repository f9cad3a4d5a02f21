#include "arrays.hpp"
#include "override.hpp"
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
    Chosen<T> chosen;
    {
        const py::gil_scoped_release unlocked;
        chosen = select_overridden(a, over, k, floor, out_indices.data(), out_values.data());
    }
    const T threshold = 0 < k && k <= chosen.found ? from_key<T>(chosen.magnitudes.least) : T{0};
    const T largest = chosen.kept > 0 ? from_key<T>(chosen.magnitudes.largest) : T{0};
    return py::make_tuple(out_indices.array(chosen.kept), out_values.array(chosen.kept), threshold, chosen.found,
                          largest);
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
