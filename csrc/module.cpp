// spardl.kernels._native: the compiled kernels. One register function per topic, each in its own file.
#include "arrays.hpp"
#include "simd.hpp"

PYBIND11_MODULE(_native, m) {
    m.doc() = "Compiled kernels of spardl; use them through spardl.kernels.";
    m.def("simd", [] { return spardl::use_avx2() ? "avx2" : "portable"; }, "Vector instructions in use.");
    spardl::register_memory(m);
    spardl::register_accumulate(m);
    spardl::register_select(m);
    spardl::register_merge(m);
    spardl::register_pack(m);
    spardl::register_frame(m);
}
