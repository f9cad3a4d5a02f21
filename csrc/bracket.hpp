// Where the k-th largest of many lies, by a sample, and the values that are there.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>

#include "magnitude.hpp"

namespace spardl {

// Two keys between which the k-th largest lies, but for bad luck; by a regular sample. All keys are at least `least`.
template <class T>
struct Bracket {
    // Fewer are as quickly looked at themselves.
    static constexpr std::int64_t samples = 512, many = 8 * samples;

    Key<T> low, high = static_cast<Key<T>>(-1) >> 1;

    Bracket(const T* values, std::int64_t count, std::int64_t k, Key<T> least) : low(least) {
        if (count < many) return;
        std::array<Key<T>, samples> keys;
        const std::int64_t stride = count / samples;
        for (std::int64_t i = 0; i < samples; ++i) keys[static_cast<std::size_t>(i)] = magnitude(values[i * stride]);
        const double share = static_cast<double>(k) / static_cast<double>(count), place = share * samples;
        const double leeway = 2 + 4 * std::sqrt(place * (1 - share));
        const auto above = keys.begin() + static_cast<std::ptrdiff_t>(std::max(0.0, place - leeway));
        const auto below = keys.begin() + static_cast<std::ptrdiff_t>(std::min<double>(samples, place + leeway));
        std::nth_element(keys.begin(), above, keys.end(), std::greater<Key<T>>());
        if (above != keys.begin()) high = *above;
        if (below == keys.end()) return;
        std::nth_element(above, below, keys.end(), std::greater<Key<T>>());
        low = *below;
    }
};

struct Sides {
    std::int64_t inside, above;
};

// Copies the values whose keys are inside the bracket, ends included; to where they are from, if you like. Up to
// bracket_slack slots behind them may be written to.
constexpr std::int64_t bracket_slack = 8;
template <class T>
Sides take_inside(const Bracket<T>& bracket, const T* values, std::int64_t count, T* out);

}  // namespace spardl
