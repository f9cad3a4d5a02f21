#include <algorithm>
#include <string>

#include "arrays.hpp"
#include "pack.hpp"

namespace spardl {
namespace {

using Words = Array<std::uint64_t>;

template <class I>
py::tuple pack_indices(const Array<I>& indices, std::int64_t base, int bits) {
    const std::int64_t count = indices.size();
    const I* index = indices.data();
    if (base < 0 || bits < 0 || bits > bits_in_any_load || !ends_are_within(index, count, base, index_limit)) {
        throw std::invalid_argument("pack: expected increasing indices from " + std::to_string(base) + " on");
    }
    const std::int64_t span = count == 0 ? 0 : static_cast<std::int64_t>(index[count - 1]) - base + 1;
    const std::int64_t low_size = words_for(count * bits), high_size = words_for(count + (span >> bits));
    Block<std::uint64_t> low(low_size), high(high_size);
    std::int64_t used;
    {
        const py::gil_scoped_release unlocked;
        std::fill_n(high.data(), high_size, 0);
        used = pack(index, count, base, bits, low.data(), high.data(), high_size);
    }
    return py::make_tuple(low.array(low_size), high.array(used));
}

template <class I>
Array<I> unpack_indices(const Words& low, const Words& high, std::int64_t count, std::int64_t base, int bits,
                        std::int64_t end) {
    const std::uint64_t *low_words = low.data(), *high_words = high.data();
    const std::int64_t low_size = low.size(), high_size = high.size();
    if (count < 0 || words_for(count) > high_size) {  // before there is room made for them
        throw std::invalid_argument("packed indices end early");
    }
    Array<I> indices = fresh<I>(count);
    I* index = indices.mutable_data();
    const py::gil_scoped_release unlocked;
    constexpr std::int64_t most = sizeof(I) == 4 ? std::int64_t{1} << 31 : index_limit;
    unpack(low_words, low_size, high_words, high_size, count, base, std::min(end, most), bits, index);
    return indices;
}

}  // namespace

void register_pack(py::module_& m) {
    m.def("pack", &pack_indices<std::int32_t>, py::arg("indices").noconvert(), py::arg("base"), py::arg("bits"));
    m.def("pack", &pack_indices<std::int64_t>, py::arg("indices").noconvert(), py::arg("base"), py::arg("bits"));
    m.def(
        "unpack",
        [](const Words& low, const Words& high, std::int64_t count, std::int64_t base, int bits, bool wide,
           std::int64_t end) {
            return wide ? py::array(unpack_indices<std::int64_t>(low, high, count, base, bits, end))
                        : py::array(unpack_indices<std::int32_t>(low, high, count, base, bits, end));
        },
        py::arg("low").noconvert(), py::arg("high").noconvert(), py::arg("count"), py::arg("base"), py::arg("bits"),
        py::arg("wide"), py::arg("end") = index_limit);
}

}  // namespace spardl
