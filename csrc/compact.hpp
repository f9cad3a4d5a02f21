// Copies the entries of a sparse vector that are large enough, closing the gaps.
#pragma once

#include <cstdint>

#include "magnitude.hpp"

namespace spardl {

// How many slots beyond the last entry copied may be written to.
constexpr std::int64_t compact_slack = 8;

// The entries whose magnitude has at least this key, in order. Returns how many.
template <class T, class I>
std::int64_t compact(const I* indices, const T* values, std::int64_t count, Key<T> least, I* out_indices,
                     T* out_values);

}  // namespace spardl
