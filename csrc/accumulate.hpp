// One pass over memory that finds the entries worth a look, with or without adding grad and residual on the way.
#pragma once

#include <cstdint>

namespace spardl {

struct Found {
    std::int64_t count = 0;  // entries at or above the floor, stored or not
    std::int64_t bad = -1;   // lowest index whose sum is not finite
};

// What is to be written to a dense array before it is read.
template <class T, class I>
struct Corrections {
    const I* indices = nullptr;  // in order
    const T* values = nullptr;
    std::int64_t size = 0;
};

// Elements lo..hi of one block, after those of the residual have been corrected. At most `room` candidates are stored;
// all are counted. If something is not finite, the candidates mean nothing.
template <class T, class I>
Found accumulate_range(const T* grad, T* residual, const Corrections<T, I>& corrections, T* out, std::int64_t lo,
                       std::int64_t hi, T floor, I* indices, T* values, std::int64_t room);

// The same search in an array that is there already. Returns how many candidates there are, NaNs among them.
template <class T, class I>
std::int64_t collect_range(const T* dense, std::int64_t size, std::int64_t base, T floor, I* indices, T* values,
                           std::int64_t room);

}  // namespace spardl
