#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "accumulate.hpp"
#include "arrays.hpp"
#include "pool.hpp"
#include "simd.hpp"

namespace spardl {
namespace {

// One block's share of the candidate buffers, and the inputs that all blocks have in common.
template <class T, class I>
struct Pass {
    const T* grad;
    T* residual;
    Corrections<T, I> corrections;
    T* out;

    Found block(std::int64_t lo, std::int64_t hi, T floor, I* indices, T* values, std::int64_t room, int threads) {
        constexpr std::int64_t worth_a_thread = 1 << 18;
        threads = static_cast<int>(std::min<std::int64_t>(threads, (hi - lo) / worth_a_thread));
        if (threads <= 1)
            return accumulate_range(grad, residual, corrections, out, lo, hi, floor, indices, values, room);
        return block_in_parts(lo, hi, floor, indices, values, room, threads);
    }

 private:
    // Each part has candidate buffers of its own; joined in order, they are what one thread would have found.
    Found block_in_parts(std::int64_t lo, std::int64_t hi, T floor, I* indices, T* values, std::int64_t room,
                         int parts) {
        struct Part {
            explicit Part(std::int64_t room) : indices(room), values(room) {}
            Scratch<I> indices;
            Scratch<T> values;
            Found found;
        };
        std::vector<std::unique_ptr<Part>> part;
        for (int t = 0; t < parts; ++t) part.push_back(std::make_unique<Part>(room));
        std::vector<std::thread> workers;
        for (int t = 0; t < parts; ++t) {
            workers.emplace_back([&, t] {
                Part& mine = *part[static_cast<std::size_t>(t)];
                mine.found = accumulate_range(grad, residual, corrections, out, lo + (hi - lo) * t / parts,
                                              lo + (hi - lo) * (t + 1) / parts, floor, mine.indices.data(),
                                              mine.values.data(), room);
            });
        }
        for (auto& worker : workers) worker.join();
        Found total;
        for (const auto& p : part) {
            const std::int64_t used = std::min(total.count, room);
            const std::int64_t fits = std::min(p->found.count, room - used);
            std::copy_n(p->indices.data(), fits, indices + used);
            std::copy_n(p->values.data(), fits, values + used);
            total.count += p->found.count;
            if (total.bad < 0) total.bad = p->found.bad;
        }
        return total;
    }
};

template <class T, class I>
py::tuple accumulate_corrected(const std::vector<std::int64_t>& blocks, const Array<T>& grad, Array<T>& residual,
                               Array<T>& out, const Array<std::int64_t>& bounds, const Array<T>& floors,
                               const Array<std::int64_t>& starts, Array<I>& indices, Array<T>& values,
                               const Array<I>& correction_indices, const Array<T>& correction_values) {
    const auto written = view(correction_indices, correction_values);
    Pass<T, I> pass{
        grad.data(), residual.mutable_data(), {written.indices, written.values, written.size}, out.mutable_data()};
    std::vector<std::int64_t> counts;
    std::int64_t bad = -1;
    {
        const std::int64_t *bound = bounds.data(), *start = starts.data();
        const T* floor = floors.data();
        I* index = indices.mutable_data();
        T* value = values.mutable_data();
        const int threads = thread_limit();
        const py::gil_scoped_release unlocked;
        for (const std::int64_t j : blocks) {
            const Found found = pass.block(bound[j], bound[j + 1], floor[j], index + start[j], value + start[j],
                                           start[j + 1] - start[j], threads);
            counts.push_back(found.count);
            if (found.bad >= 0 && (bad < 0 || found.bad < bad)) bad = found.bad;
        }
    }
    return py::make_tuple(counts, bad);
}

template <class T, class I>
py::tuple accumulate(const std::vector<std::int64_t>& blocks, const Array<T>& grad, Array<T>& residual, Array<T>& out,
                     const Array<std::int64_t>& bounds, const Array<T>& floors, const Array<std::int64_t>& starts,
                     Array<I>& indices, Array<T>& values) {
    return accumulate_corrected<T, I>(blocks, grad, residual, out, bounds, floors, starts, indices, values, fresh<I>(0),
                                      fresh<T>(0));
}

}  // namespace

void register_accumulate(py::module_& m) {
#define SPARDL_PASS                                                                                              \
    py::arg("blocks"), py::arg("grad").noconvert(), py::arg("residual").noconvert(), py::arg("out").noconvert(), \
        py::arg("bounds").noconvert(), py::arg("floors").noconvert(), py::arg("starts").noconvert(),             \
        py::arg("indices").noconvert(), py::arg("values").noconvert()
#define SPARDL_DEFINE(T, I)                                                                                            \
    m.def("accumulate", &accumulate<T, I>, SPARDL_PASS);                                                               \
    m.def("accumulate_corrected", &accumulate_corrected<T, I>, SPARDL_PASS, py::arg("correction_indices").noconvert(), \
          py::arg("correction_values").noconvert());
    SPARDL_FOR_VALUE_AND_INDEX(SPARDL_DEFINE)
#undef SPARDL_DEFINE
#undef SPARDL_PASS
}

}  // namespace spardl
