// The largest entries of a sparse vector that another one overrides.
#pragma once

#include <cstdint>

#include "compact.hpp"
#include "extent.hpp"
#include "intersect.hpp"
#include "merge.hpp"
#include "select.hpp"

namespace spardl {

template <class T>
struct Chosen {
    std::int64_t kept = 0;
    std::int64_t found = 0;  // how many stand at or above the floor
    Extent<T> magnitudes{};  // of those that are kept
};

namespace detail {

// `near` are all that stand at or above the floor. The largest of them is kept, if any is, and if all are the least.
template <class T>
Chosen<T> chosen_by(const Cut<T>& cut, std::int64_t found, const Extent<T>& near) {
    return {cut.kept, found, {cut.kept < found ? cut.key : near.least, near.largest}};
}

template <class T, class I>
Chosen<T> choose(const View<T, I>& near, const Extent<T>& magnitudes, std::int64_t k, T floor, I* indices, T* values) {
    const Cut<T> cut = find_cut_above(near.values, near.size, k, magnitude(floor));
    take_cut(near.indices, near.values, near.size, cut, indices, values);
    return chosen_by(cut, near.size, magnitudes);
}

// What is left of a, and over, one behind the other: where to cut does not depend on their order, and only what is
// chosen of the two has to be merged. Not if some but not all of those that tie for the last place are to be chosen:
// that goes by index. Nor if there are NaNs, which have the largest magnitudes but are not above anything. False in
// these cases.
template <class T, class I>
bool choose_apart(const View<T, I>& a, const View<T, I>& over, std::int64_t k, T floor, const Scratch<I>& near_indices,
                  const Scratch<T>& near_values, I* indices, T* values, Chosen<T>& chosen) {
    I* const index = near_indices.data();
    T* const value = near_values.data();
    const Key<T> least = magnitude(floor);
    std::int64_t of_a = other_entries(over.indices, over.size, a, index, value);
    if (extent(value, of_a).least < least) of_a = compact(index, value, of_a, least, index, value);
    I* const over_index = index + of_a;
    T* const over_value = value + of_a;
    const std::int64_t of_over = compact(over.indices, over.values, over.size, least, over_index, over_value);
    const std::int64_t found = of_a + of_over;
    const Extent<T> magnitudes = extent(value, found);
    if (magnitudes.largest > KeyOf<T>::infinity) return false;
    const Cut<T> cut = find_cut_above(value, found, k, least);
    if (!cut.every_tie) return false;
    const std::int64_t kept_of_a = compact(index, value, of_a, cut.key, index, value);
    const std::int64_t kept_of_over = compact(over_index, over_value, of_over, cut.key, over_index, over_value);
    merge_disjoint<T, I>({index, value, kept_of_a}, {over_index, over_value, kept_of_over}, indices, values);
    chosen = chosen_by(cut, found, magnitudes);
    return true;
}

}  // namespace detail

// The k largest of `a` overridden by `over`, as far as they are at or above the floor, in order. The outputs have room
// for them and compact_slack.
template <class T, class I>
Chosen<T> select_overridden(const View<T, I>& a, const View<T, I>& over, std::int64_t k, T floor, I* indices,
                            T* values) {
    if (over.size == 0) {
        const Extent<T> magnitudes = extent(a.values, a.size);
        if (magnitudes.least >= magnitude(floor)) return detail::choose(a, magnitudes, k, floor, indices, values);
    }
    const std::int64_t room = a.size + over.size + intersect_slack + compact_slack;
    const Scratch<I> near_indices(room);
    const Scratch<T> near_values(room);
    Chosen<T> chosen;
    if (intersects_in_vectors<T, I>() &&
        detail::choose_apart(a, over, k, floor, near_indices, near_values, indices, values, chosen)) {
        return chosen;
    }
    const std::int64_t found = merge(Override<T, I>{a, over, floor}, near_indices.data(), near_values.data());
    const View<T, I> near{near_indices.data(), near_values.data(), found};
    return detail::choose(near, extent(near.values, found), k, floor, indices, values);
}

}  // namespace spardl
