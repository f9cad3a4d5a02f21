// Between which magnitudes values lie.
#pragma once

#include <cstdint>

#include "magnitude.hpp"

namespace spardl {

// Keys: a NaN's is the largest there is, above infinity's.
template <class T>
struct Extent {
    Key<T> least = static_cast<Key<T>>(-1) >> 1, largest = 0;  // of no values
};

template <class T>
Extent<T> extent(const T* values, std::int64_t count);

}  // namespace spardl
