// Floating-point numbers as bits, and the order in which entries are selected: by |value|.
#pragma once

#include <cstdint>
#include <cstring>

namespace spardl {

template <class T>
struct KeyOf;
template <>
struct KeyOf<float> {
    using type = std::uint32_t;
    static constexpr int bits = 31;
    static constexpr type infinity = 0x7f800000u;
};
template <>
struct KeyOf<double> {
    using type = std::uint64_t;
    static constexpr int bits = 63;
    static constexpr type infinity = 0x7ff0000000000000ull;
};
template <class T>
using Key = typename KeyOf<T>::type;

template <class T>
inline Key<T> bits_of(T value) {
    Key<T> bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

template <class T>
inline T from_key(Key<T> key) {
    T value;
    std::memcpy(&value, &key, sizeof value);
    return value;
}

// IEEE-754 without its sign bit compares like the magnitude; zero is the only key 0.
template <class T>
inline Key<T> magnitude(T value) {
    return bits_of(value) & (static_cast<Key<T>>(-1) >> 1);
}

template <class T>
inline bool is_finite(T value) {
    return magnitude(value) < KeyOf<T>::infinity;
}

}  // namespace spardl
