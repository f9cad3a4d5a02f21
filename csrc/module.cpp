// spardl.kernels._native: the compiled kernels. One register function per topic, each in its own file.
#include "arrays.hpp"
#include "simd.hpp"

PYBIND11_MODULE(_native, m) {
    m.doc() = "Compiled kernels of spardl; use them through spardl.kernels.";
    m.def("simd", [] { return spardl::use_avx2() ? "avx2" : "portable"; }, "Vector instructions in use.");
    m.def("empty", &spardl::fresh<std::uint8_t>, "A uint8 array of undefined contents from the pool.");
    spardl::register_accumulate(m);
    spardl::register_select(m);
    spardl::register_merge(m);
    spardl::register_pack(m);
    spardl::register_frame(m);
}
