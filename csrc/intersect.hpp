// Sorted sparse vectors: the entries of one whose index another has, or has not.
#pragma once

#include <algorithm>
#include <cstdint>

#include "merge.hpp"
#include "simd.hpp"

namespace spardl {

// The vectorised ways write whole vectors: so many entries more than they find.
constexpr std::int64_t intersect_slack = 8;

// Whether there are vectorised ways for these types, on this processor.
template <class T, class I>
bool intersects_in_vectors() {
    return sizeof(T) == 4 && sizeof(I) == 4 && use_avx2();
}

// Copies the entries of `b` whose index is among `wanted`, in order; the outputs have room for all that may be, and
// intersect_slack. Returns how many there are.
template <class T, class I>
std::int64_t common_entries(const I* wanted, std::int64_t wanted_size, const View<T, I>& b, I* indices, T* values);

// The same for those entries of `b` whose index is not among `taken`.
template <class T, class I>
std::int64_t other_entries(const I* taken, std::int64_t taken_size, const View<T, I>& b, I* indices, T* values);

// The entries of `first` whose index is wanted, and those of `second` whose index is wanted and not in `first`, in
// order; room as for common_entries. Returns how many there are.
template <class T, class I>
std::int64_t corrections_of(const I* wanted, std::int64_t wanted_size, const View<T, I>& first,
                            const View<T, I>& second, I* indices, T* values) {
    if (wanted == first.indices && wanted_size == first.size) {
        std::copy_n(first.indices, first.size, indices);
        std::copy_n(first.values, first.size, values);
        return first.size;
    }
    if (second.size == 0) return common_entries(wanted, wanted_size, first, indices, values);
    const std::int64_t room = wanted_size + intersect_slack;
    const Scratch<I> one_indices(room), both_indices(room), other_indices(room);
    const Scratch<T> one_values(room), both_values(room), other_values(room);
    const View<T, I> one{one_indices.data(), one_values.data(),
                         common_entries(wanted, wanted_size, first, one_indices.data(), one_values.data())};
    const View<T, I> both{both_indices.data(), both_values.data(),
                          common_entries(wanted, wanted_size, second, both_indices.data(), both_values.data())};
    const View<T, I> other{other_indices.data(), other_values.data(),
                           other_entries(first.indices, first.size, both, other_indices.data(), other_values.data())};
    merge_disjoint(one, other, indices, values);
    return one.size + other.size;
}

// Applies update(target, b's value) to dense at every index of b that is also wanted. First the common indices are
// listed, which touches nothing else; then dense is visited, each place announced well ahead.
template <class T, class I, class Update>
void update_where(T* dense, const I* wanted, std::int64_t wanted_size, const View<T, I>& b, Update update) {
    const auto visit = [&](const View<T, I>& common) {
        for (std::int64_t c = 0; c < common.size; ++c) {
            prefetch_ahead(dense, common.indices, c, common.size);
            update(dense[common.indices[c]], common.values[c]);
        }
    };
    if (wanted == b.indices && wanted_size == b.size) return visit(b);
    const std::int64_t room = wanted_size + intersect_slack;
    const Scratch<I> indices(room);
    const Scratch<T> values(room);
    const std::int64_t found = common_entries(wanted, wanted_size, b, indices.data(), values.data());
    visit({indices.data(), values.data(), found});
}

}  // namespace spardl
